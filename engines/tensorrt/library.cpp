// libocelli_tensorrt and libocelli_tensorrt_rtx: what Ocelli uses of TensorRT, as one table of C functions. build.sh compiles
// this file once with the headers of TensorRT and once with those of TensorRT for RTX. It links neither: the program loads
// NVIDIA's library and passes the functions that create its objects.
//
// When a call fails, TensorRT returns null or false and passes the reason to its logger, which passes it to the program. No
// exception leaves these functions: TensorRT throws none, and what is allocated here is checked.

#include <NvInfer.h>
#include <NvOnnxParser.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <utility>

namespace {

using nvinfer1::Dims64;
using Create = void *(*)(void *logger, std::int32_t version);
using CreateParser = void *(*)(void *network, void *logger, std::int32_t version);

// The optimisation profile of all contexts.
constexpr std::int32_t PROFILE = 0;
// The verbosity with which a file is parsed: warnings and errors.
constexpr int VERBOSITY = 2;

// The layout and the numbers that calls/part.rs expects.
static_assert(sizeof(Dims64) == 72 && offsetof(Dims64, d) == 8 && Dims64::MAX_DIMS == 8);
static_assert(static_cast<int>(nvinfer1::DataType::kFLOAT) == 0 && static_cast<int>(nvinfer1::DataType::kHALF) == 1);
static_assert(static_cast<int>(nvinfer1::DataType::kINT32) == 3 && static_cast<int>(nvinfer1::DataType::kBOOL) == 4);
static_assert(static_cast<int>(nvinfer1::DataType::kUINT8) == 5 && static_cast<int>(nvinfer1::DataType::kINT64) == 8);

using Log = void (*)(std::int32_t severity, const char *message);

class Logger final : public nvinfer1::ILogger {
 public:
  std::atomic<Log> take{nullptr};

  void log(Severity severity, const char *message) noexcept override {
    if (const Log log = take.load()) log(static_cast<std::int32_t>(severity), message);
  }
};

// The logger of the process, which is never destroyed: TensorRT keeps the first that it receives.
Logger &logger() noexcept {
  alignas(Logger) static unsigned char memory[sizeof(Logger)];
  static Logger *const made = new (memory) Logger;
  return *made;
}

void *logger_address() noexcept { return static_cast<nvinfer1::ILogger *>(&logger()); }

// The lowest address an object can have. Without a driver the lean runtime returns the address of a member of a null object,
// which is not null.
constexpr std::uintptr_t FIRST_ADDRESS = 1 << 16;

// Owns an object that TensorRT made for its caller.
template <typename T>
std::unique_ptr<T> own(void *object) noexcept {
  const bool is_object = reinterpret_cast<std::uintptr_t>(object) >= FIRST_ADDRESS;
  return std::unique_ptr<T>(is_object ? static_cast<T *>(object) : nullptr);
}

// An input or output.
struct Tensor {
  const char *name;
  const char *dimensions[Dims64::MAX_DIMS];  // of a network: names, or null
  Dims64 shape;                              // -1 where it is dynamic; rank -1 if it has none
  Dims64 min;                                // of an input of a plan
  Dims64 max;                                // of an input of a plan
  std::int32_t type;                         // nvinfer1::DataType
  std::int32_t role;                         // nvinfer1::TensorIOMode: 0 neither, 1 input, 2 output
  std::int32_t is_on_host;
  std::int32_t is_row_major;
};

// ---- what every library has ----

// 1 for TensorRT for RTX.
std::int32_t is_rtx() noexcept {
#ifdef TRT_MAJOR_RTX
  return 1;
#else
  return 0;
#endif
}

// The version of the headers: major, minor, patch in steps of a hundred.
std::int32_t version() noexcept { return static_cast<std::int32_t>(NV_TENSORRT_VERSION); }

void set_log(Log log) noexcept { logger().take = log; }

using Memory = nvinfer1::IHostMemory;

const void *memory_data(const Memory *memory) noexcept { return memory->data(); }

std::size_t memory_size(const Memory *memory) noexcept { return memory->size(); }

void memory_free(Memory *memory) noexcept { delete memory; }

// ---- builds ----

// Destroyed from the last to the first: every object before the one that created it (the parser holds the weights that the
// network refers to, optimisation profiles belong to the builder), and the configuration before the timing cache.
struct Build {
  std::unique_ptr<nvinfer1::ITimingCache> timing_cache;
  std::unique_ptr<nvinfer1::IBuilder> builder;
  std::unique_ptr<nvinfer1::IBuilderConfig> config;
  std::unique_ptr<nvinfer1::INetworkDefinition> network;
  std::unique_ptr<nvonnxparser::IParser> parser;
};

// Null if TensorRT cannot create the object whose name is then in `missing`.
Build *build_open(Create create_builder, CreateParser create_parser, const char **missing) noexcept {
  std::unique_ptr<Build> build(new (std::nothrow) Build);
  *missing = "builder";
  if (!build) return nullptr;
  build->builder = own<nvinfer1::IBuilder>(create_builder(logger_address(), version()));
  if (!build->builder) return nullptr;
  *missing = "configuration";
  build->config = own<nvinfer1::IBuilderConfig>(build->builder->createBuilderConfig());
  if (!build->config) return nullptr;
  *missing = "network";
  // No flag is needed: all networks are strongly typed.
  build->network = own<nvinfer1::INetworkDefinition>(build->builder->createNetworkV2(0));
  if (!build->network) return nullptr;
  *missing = "ONNX parser";
  build->parser = own<nvonnxparser::IParser>(
      create_parser(build->network.get(), logger_address(), static_cast<std::int32_t>(NV_ONNX_PARSER_VERSION)));
  return build->parser ? build.release() : nullptr;
}

void build_free(Build *build) noexcept { delete build; }

std::int32_t build_parse(Build *build, const char *path) noexcept {
  return build->parser->parseFromFile(path, VERBOSITY);
}

// The strings belong to the parser until it parses again.
struct ParseError {
  const char *description;
  const char *node_name;
  const char *node_operator;
  std::int32_t node;  // negative if the error concerns no node
};

// Whether there is an error of this index.
std::int32_t build_parse_error(const Build *build, std::int32_t index, ParseError *result) noexcept {
  if (index >= build->parser->getNbErrors()) return 0;
  const nvonnxparser::IParserError *error = build->parser->getError(index);
  if (error == nullptr) return 0;
  *result = {error->desc(), error->nodeName(), error->nodeOperator(), error->node()};
  return 1;
}

// Whether the network has an input (role 1) or output (role 2) of this index. The strings belong to the network.
std::int32_t build_tensor(const Build *build, std::int32_t role, std::int32_t index, Tensor *result) noexcept {
  const auto &network = *build->network;
  const bool is_input = role == 1;
  if (index >= (is_input ? network.getNbInputs() : network.getNbOutputs())) return 0;
  const nvinfer1::ITensor *tensor = is_input ? network.getInput(index) : network.getOutput(index);
  if (tensor == nullptr) return 0;
  *result = Tensor{};
  result->name = tensor->getName();
  result->shape = tensor->getDimensions();
  result->type = static_cast<std::int32_t>(tensor->getType());
  result->role = role;
  result->is_row_major = 1;
  for (std::int32_t axis = 0; axis < result->shape.nbDims; ++axis) {
    result->dimensions[axis] = tensor->getDimensionName(axis);
  }
  return 1;
}

// Whether TensorRT accepts the compute capabilities, 89 for 8.9.
std::int32_t build_set_targets(Build *build, const std::int32_t *targets, std::size_t count) noexcept {
#ifdef TRT_MAJOR_RTX
  auto &config = *build->config;
  if (!config.setNbComputeCapabilities(static_cast<std::int32_t>(count))) return 0;
  for (std::size_t index = 0; index < count; ++index) {
    const auto target = static_cast<nvinfer1::ComputeCapability>(targets[index]);
    if (!config.setComputeCapability(target, static_cast<std::int32_t>(index))) return 0;
  }
  return 1;
#else
  // TensorRT proper builds for the GPU of this machine only.
  static_cast<void>(build);
  static_cast<void>(targets);
  return count == 0;
#endif
}

std::int32_t build_set_workspace(Build *build, std::size_t bytes) noexcept {
  constexpr auto pool = nvinfer1::MemoryPoolType::kWORKSPACE;
  build->config->setMemoryPoolLimit(pool, bytes);
  return build->config->getMemoryPoolLimit(pool) == bytes;
}

std::int32_t build_set_version_compatible(Build *build) noexcept {
  constexpr auto flag = nvinfer1::BuilderFlag::kVERSION_COMPATIBLE;
  build->config->setFlag(flag);
  return build->config->getFlag(flag);
}

std::int32_t build_set_hardware_compatible(Build *build) noexcept {
  constexpr auto level = nvinfer1::HardwareCompatibilityLevel::kAMPERE_PLUS;
  build->config->setHardwareCompatibilityLevel(level);
  return build->config->getHardwareCompatibilityLevel() == level;
}

std::int32_t build_set_level(Build *build, std::int32_t level) noexcept {
  build->config->setBuilderOptimizationLevel(level);
  return build->config->getBuilderOptimizationLevel() == level;
}

// The sizes of an input with dynamic dimensions.
struct Range {
  const char *name;
  Dims64 min;
  Dims64 optimal;
  Dims64 max;
};

std::int32_t build_add_profile(Build *build, const Range *ranges, std::size_t count) noexcept {
  using nvinfer1::OptProfileSelector;
  nvinfer1::IOptimizationProfile *profile = build->builder->createOptimizationProfile();
  if (profile == nullptr) return 0;
  for (const Range *range = ranges; range != ranges + count; ++range) {
    if (!profile->setDimensions(range->name, OptProfileSelector::kMIN, range->min) ||
        !profile->setDimensions(range->name, OptProfileSelector::kOPT, range->optimal) ||
        !profile->setDimensions(range->name, OptProfileSelector::kMAX, range->max)) {
      return 0;
    }
  }
  return profile->isValid() && build->config->addOptimizationProfile(profile) >= 0;
}

// 1 if the times are used, 0 if they come from another version or GPU, -1 if there is no cache.
std::int32_t build_use_timing_cache(Build *build, const void *bytes, std::size_t size) noexcept {
  auto cache = own<nvinfer1::ITimingCache>(build->config->createTimingCache(bytes, size));
  if (!cache) return -1;
  // The configuration does not keep a cache that it refuses.
  if (!build->config->setTimingCache(*cache, false)) return 0;
  build->timing_cache = std::move(cache);
  return 1;
}

// Null without a timing cache.
Memory *build_timing_cache(const Build *build) noexcept {
  return build->timing_cache ? own<Memory>(build->timing_cache->serialize()).release() : nullptr;
}

struct Progress {
  void *caller;
  void (*start)(void *caller, const char *phase, const char *parent, std::int32_t steps);
  std::int32_t (*step)(void *caller, const char *phase, std::int32_t step);
  void (*finish)(void *caller, const char *phase);
};

class Monitor final : public nvinfer1::IProgressMonitor {
 public:
  explicit Monitor(const Progress &progress) : progress_(progress) {}

  void phaseStart(const char *phase, const char *parent, std::int32_t steps) noexcept override {
    progress_.start(progress_.caller, phase, parent, steps);
  }
  bool stepComplete(const char *phase, std::int32_t step) noexcept override {
    return progress_.step(progress_.caller, phase, step) != 0;
  }
  void phaseFinish(const char *phase) noexcept override { progress_.finish(progress_.caller, phase); }

 private:
  Progress progress_;
};

// The plan; null if TensorRT cannot build it.
Memory *build_run(Build *build, const Progress *progress) noexcept {
  Monitor monitor(*progress);
  build->config->setProgressMonitor(&monitor);
  auto plan = own<Memory>(build->builder->buildSerializedNetwork(*build->network, *build->config));
  build->config->setProgressMonitor(nullptr);
  return plan.release();
}

// ---- runs ----

// Destroyed from the last to the first.
struct Plan {
  std::unique_ptr<nvinfer1::IRuntime> runtime;
  std::unique_ptr<nvinfer1::ICudaEngine> engine;
};

// What is wrong with a plan according to its header, as far as TensorRT says.
void diagnose(const nvinfer1::IRuntime &runtime, const void *bytes, std::size_t size, char *text, std::size_t room) noexcept {
  text[0] = '\0';
#ifdef TRT_MAJOR_RTX
  using Diagnostics = nvinfer1::EngineInvalidityDiagnostics;
  if (static_cast<std::int64_t>(size) < runtime.getEngineHeaderSize()) {
    std::snprintf(text, room, "the plan is shorter than a plan's header");
    return;
  }
  constexpr struct {
    Diagnostics bit;
    const char *meaning;
  } MEANINGS[] = {
      {Diagnostics::kVERSION_MISMATCH, "another version of TensorRT for RTX built the plan"},
      {Diagnostics::kUNSUPPORTED_CC, "the plan was built for other compute capabilities"},
      {Diagnostics::kOLD_CUDA_DRIVER, "the driver is older than the one the plan was built with"},
      {Diagnostics::kOLD_CUDA_RUNTIME, "the CUDA runtime is older than the one the plan was built with"},
      {Diagnostics::kINSUFFICIENT_GPU_MEMORY, "the GPU has too little memory for the plan's weights"},
      {Diagnostics::kMALFORMED_ENGINE, "the plan is corrupt, or the file is not a plan"},
      {Diagnostics::kCUDA_ERROR, "CUDA is not installed correctly"},
  };
  std::uint64_t bits = 0;
  runtime.getEngineValidity(bytes, static_cast<std::int64_t>(size), &bits);
  std::size_t length = 0;
  for (const auto &known : MEANINGS) {
    if ((bits & static_cast<std::uint64_t>(known.bit)) == 0 || length >= room) continue;
    const int written = std::snprintf(text + length, room - length, "%s%s", length == 0 ? "" : ", ", known.meaning);
    if (written > 0) length += static_cast<std::size_t>(written);
  }
#else
  static_cast<void>(runtime);
  static_cast<void>(bytes);
  static_cast<void>(size);
  static_cast<void>(room);
#endif
}

// Null if TensorRT does not start, or refuses the plan: `diagnosis` (of at least one byte) is then what it says about its
// header.
Plan *plan_load(Create create_runtime, const void *bytes, std::size_t size, std::int32_t *starts, char *diagnosis,
                std::size_t room) noexcept {
  *starts = 0;
  diagnosis[0] = '\0';
  std::unique_ptr<Plan> plan(new (std::nothrow) Plan);
  if (!plan) return nullptr;
  plan->runtime = own<nvinfer1::IRuntime>(create_runtime(logger_address(), version()));
  if (!plan->runtime) return nullptr;
  *starts = 1;
  plan->engine = own<nvinfer1::ICudaEngine>(plan->runtime->deserializeCudaEngine(bytes, size));
  if (plan->engine) return plan.release();
  diagnose(*plan->runtime, bytes, size, diagnosis, room);
  return nullptr;
}

void plan_free(Plan *plan) noexcept { delete plan; }

// Whether the plan has a tensor of this index.
std::int32_t plan_tensor(const Plan *plan, std::int32_t index, Tensor *result) noexcept {
  using nvinfer1::OptProfileSelector;
  const auto &engine = *plan->engine;
  if (index >= engine.getNbIOTensors()) return 0;
  *result = Tensor{};
  const char *name = engine.getIOTensorName(index);
  result->name = name;
  if (name == nullptr) return 1;
  const auto role = engine.getTensorIOMode(name);
  result->role = static_cast<std::int32_t>(role);
  result->shape = engine.getTensorShape(name);
  result->type = static_cast<std::int32_t>(engine.getTensorDataType(name));
  result->is_on_host = engine.getTensorLocation(name) == nvinfer1::TensorLocation::kHOST;
  result->is_row_major = engine.getTensorFormat(name) == nvinfer1::TensorFormat::kLINEAR;
  if (role == nvinfer1::TensorIOMode::kINPUT && result->is_on_host == 0) {
    result->min = engine.getProfileShape(name, PROFILE, OptProfileSelector::kMIN);
    result->max = engine.getProfileShape(name, PROFILE, OptProfileSelector::kMAX);
  }
  return 1;
}

// The device memory of each context in bytes.
std::int64_t plan_context_bytes(const Plan *plan) noexcept { return plan->engine->getDeviceMemorySizeV2(); }

// Destroyed from the last to the first: the context before what it may read.
struct Context {
#ifdef TRT_MAJOR_RTX
  std::unique_ptr<nvinfer1::IRuntimeCache> kernels;
  std::unique_ptr<nvinfer1::IRuntimeConfig> config;
#endif
  std::unique_ptr<nvinfer1::IExecutionContext> context;
};

// A context of a plan, which outlives it. `accepts_kernels` says whether it accepts the kernels that an earlier one compiled;
// with `is_captured`, all kernels are compiled before the first run. Null if TensorRT fails.
Context *context_open(Plan *plan, std::int32_t is_captured, const void *kernels, std::size_t size,
                      std::int32_t *accepts_kernels) noexcept {
  *accepts_kernels = 1;
  std::unique_ptr<Context> made(new (std::nothrow) Context);
  if (!made) return nullptr;
  constexpr auto allocation = nvinfer1::ExecutionContextAllocationStrategy::kSTATIC;
#ifdef TRT_MAJOR_RTX
  using nvinfer1::DynamicShapesKernelSpecializationStrategy;
  made->config = own<nvinfer1::IRuntimeConfig>(plan->engine->createRuntimeConfig());
  if (!made->config) return nullptr;
  auto &config = *made->config;
  config.setExecutionContextAllocationStrategy(allocation);
  config.setDynamicShapesKernelSpecializationStrategy(is_captured != 0 ? DynamicShapesKernelSpecializationStrategy::kEAGER
                                                                       : DynamicShapesKernelSpecializationStrategy::kLAZY);
  // Runs are captured by the program, with the waits between streams; TensorRT must not capture them as well.
  config.setCudaGraphStrategy(nvinfer1::CudaGraphStrategy::kDISABLED);
  made->kernels = own<nvinfer1::IRuntimeCache>(config.createRuntimeCache());
  if (made->kernels && size != 0) *accepts_kernels = made->kernels->deserialize(kernels, size);
  // Without a cache, kernels are compiled as if there were no file.
  if (made->kernels && !config.setRuntimeCache(*made->kernels)) made->kernels.reset();
  made->context = own<nvinfer1::IExecutionContext>(plan->engine->createExecutionContext(made->config.get()));
#else
  static_cast<void>(is_captured);
  static_cast<void>(kernels);
  static_cast<void>(size);
  made->context = own<nvinfer1::IExecutionContext>(plan->engine->createExecutionContext(allocation));
#endif
  return made->context ? made.release() : nullptr;
}

void context_free(Context *context) noexcept { delete context; }

// The kernels that were compiled so far; null for TensorRT proper, which compiles none.
Memory *context_kernels(const Context *context) noexcept {
#ifdef TRT_MAJOR_RTX
  return context->kernels ? own<Memory>(context->kernels->serialize()).release() : nullptr;
#else
  static_cast<void>(context);
  return nullptr;
#endif
}

std::int32_t context_set_shape(Context *context, const char *name, const Dims64 *shape) noexcept {
  return context->context->setInputShape(name, *shape);
}

// The shape of an output, which follows from the shapes of the inputs.
void context_shape(const Context *context, const char *name, Dims64 *shape) noexcept {
  *shape = context->context->getTensorShape(name);
}

std::int32_t context_set_address(Context *context, const char *name, void *address) noexcept {
  return context->context->setTensorAddress(name, address);
}

// Whether a run can be captured. TensorRT proper does not know in advance.
std::int32_t context_can_be_captured(const Context *context, void *stream) noexcept {
#ifdef TRT_MAJOR_RTX
  return context->context->isStreamCapturable(static_cast<cudaStream_t>(stream));
#else
  static_cast<void>(context);
  return stream != nullptr;
#endif
}

std::int32_t context_enqueue(Context *context, void *stream) noexcept {
  return context->context->enqueueV3(static_cast<cudaStream_t>(stream));
}

// The order and the types are those of `Table` in calls/part.rs; VERSION there and here change with them.
constexpr std::uint32_t VERSION = 1;

struct Table {
  decltype(&is_rtx) is_rtx_;
  decltype(&version) version_;
  decltype(&set_log) set_log_;
  decltype(&memory_data) memory_data_;
  decltype(&memory_size) memory_size_;
  decltype(&memory_free) memory_free_;
  decltype(&build_open) build_open_;
  decltype(&build_free) build_free_;
  decltype(&build_parse) build_parse_;
  decltype(&build_parse_error) build_parse_error_;
  decltype(&build_tensor) build_tensor_;
  decltype(&build_set_targets) build_set_targets_;
  decltype(&build_set_workspace) build_set_workspace_;
  decltype(&build_set_version_compatible) build_set_version_compatible_;
  decltype(&build_set_hardware_compatible) build_set_hardware_compatible_;
  decltype(&build_set_level) build_set_level_;
  decltype(&build_add_profile) build_add_profile_;
  decltype(&build_use_timing_cache) build_use_timing_cache_;
  decltype(&build_timing_cache) build_timing_cache_;
  decltype(&build_run) build_run_;
  decltype(&plan_load) plan_load_;
  decltype(&plan_free) plan_free_;
  decltype(&plan_tensor) plan_tensor_;
  decltype(&plan_context_bytes) plan_context_bytes_;
  decltype(&context_open) context_open_;
  decltype(&context_free) context_free_;
  decltype(&context_kernels) context_kernels_;
  decltype(&context_set_shape) context_set_shape_;
  decltype(&context_shape) context_shape_;
  decltype(&context_set_address) context_set_address_;
  decltype(&context_can_be_captured) context_can_be_captured_;
  decltype(&context_enqueue) context_enqueue_;
};

constexpr Table TABLE = {
    &is_rtx, &version, &set_log,
    &memory_data, &memory_size, &memory_free,
    &build_open, &build_free, &build_parse, &build_parse_error, &build_tensor,
    &build_set_targets, &build_set_workspace, &build_set_version_compatible, &build_set_hardware_compatible, &build_set_level,
    &build_add_profile, &build_use_timing_cache, &build_timing_cache, &build_run,
    &plan_load, &plan_free, &plan_tensor, &plan_context_bytes,
    &context_open, &context_free, &context_kernels,
    &context_set_shape, &context_shape, &context_set_address, &context_can_be_captured, &context_enqueue,
};

}  // namespace

// The table, or null for a program that expects another version of it.
extern "C" __attribute__((visibility("default"))) const void *ocelli_tensorrt(std::uint32_t version) noexcept {
  return version == VERSION ? &TABLE : nullptr;
}
