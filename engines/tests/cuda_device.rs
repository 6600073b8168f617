//! Buffers, streams and graphs on an NVIDIA GPU. `OCELLI_TEST_GPU` selects one other than GPU 0.

use ocelli_engines::cuda::{CudaBuffer, CudaDevice, CudaKernels, CudaStream, KernelArgument, StreamPriority};
use ocelli_engines::{ElementType, ErrorKind, Tensor};
use std::sync::Arc;

fn ordinal() -> usize {
    std::env::var("OCELLI_TEST_GPU").map_or(0, |number| number.parse().expect("OCELLI_TEST_GPU is a number"))
}

fn open() -> Arc<CudaDevice> {
    CudaDevice::open(ordinal()).expect("there is a GPU")
}

fn stream(device: &CudaDevice, priority: StreamPriority) -> CudaStream {
    CudaStream::new(device, priority).expect("it is created")
}

/// Fills a whole buffer with one byte.
fn fill(on: &CudaStream, buffer: &CudaBuffer, value: u8) {
    on.copy_to_device(buffer, 0, &vec![value; buffer.capacity()]).expect("it is enqueued");
}

/// Copies a whole buffer to another of the same size.
fn copy(on: &CudaStream, from: &CudaBuffer, to: &CudaBuffer) {
    on.copy_on_device((to, 0), (from, 0), to.capacity()).expect("it is enqueued");
}

/// The byte that a whole buffer is filled with, if it is one.
fn uniform(on: &CudaStream, buffer: &CudaBuffer, scratch: &mut Vec<u8>) -> Option<u8> {
    scratch.resize(buffer.capacity(), 0);
    on.copy_to_host(buffer, 0, scratch).expect("it is copied");
    scratch.iter().all(|byte| *byte == scratch[0]).then_some(scratch[0])
}

/// Reproducible pseudo-random numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

#[test]
fn a_missing_gpu_is_unavailable() {
    let error = CudaDevice::open(1_000_000).expect_err("no machine has as many");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(text.lines().count(), 1, "{text}");
    let without_driver = text.starts_with("cannot use an NVIDIA GPU: NVIDIA's driver ");
    let with_driver = text.starts_with("cannot use an NVIDIA GPU: GPU 1000000 does not exist, there ");
    let without_gpu = text.starts_with("cannot use an NVIDIA GPU: there is none on this machine");
    assert!(without_driver || with_driver || without_gpu, "{text}");
    // An error is not remembered, and does not poison anything.
    assert_eq!(CudaDevice::open(1_000_000).expect_err("as before").to_string(), text);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_device_describes_itself() {
    let device = open();
    let memory = device.memory().expect("the driver answers");
    assert!(memory.free > 0 && memory.free <= memory.total, "{memory:?}");
    assert!(device.compute_capability().0 >= 5);
    assert!(Arc::ptr_eq(&device, &open()), "an open device is returned again");
    assert_eq!(device.ordinal(), ordinal());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn copied_bytes_come_back() {
    let device = open();
    let on = stream(&device, StreamPriority::Normal);
    let mut failures = Vec::new();
    for (bytes, offset) in
        [(1, 0), (1, 700), (3, 255), (4096, 0), (100_000, 7), (40 << 20, 13), (200 << 20, 0)]
    {
        let buffer = device.allocate_buffer(bytes + offset).expect("there is memory");
        let sent: Vec<u8> = (0..bytes).map(|index| (index * 7 + index / 251) as u8).collect();
        let mut received = vec![0; bytes];
        on.copy_to_device(&buffer, offset, &sent).expect("it fits");
        on.copy_to_host(&buffer, offset, &mut received).expect("it fits");
        if received != sent {
            failures.push(format!("{bytes} bytes at offset {offset}"));
        }
        let end = buffer.capacity();
        let error = on.copy_to_device(&buffer, end, &[1]).expect_err("it is out of bounds");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
    assert!(failures.is_empty(), "other bytes came back:\n{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn two_streams_keep_the_order_of_ten_thousand_operations() {
    const BYTES: usize = 1 << 20;
    let device = open();
    let streams = [stream(&device, StreamPriority::Normal), stream(&device, StreamPriority::High)];
    let reader = stream(&device, StreamPriority::High);
    let allocate = || device.allocate_buffer(BYTES).expect("there is memory");
    let mut buffers: Vec<_> = (0..4).map(|_| allocate()).collect();
    let mut expected = [0; 4];
    buffers.iter().for_each(|buffer| fill(&streams[0], buffer, 0));
    let (mut numbers, mut scratch, mut failures) = (Numbers(11), Vec::new(), Vec::new());
    for round in 0..10_000 {
        let (on, to) = (&streams[numbers.below(2)], numbers.below(4));
        match numbers.below(20) {
            operation @ 0..=5 => {
                if operation == 5 {
                    // The old buffer is freed while it may still be in use.
                    buffers[to] = allocate();
                }
                expected[to] = numbers.below(256) as u8;
                fill(on, &buffers[to], expected[to]);
            }
            _ => {
                let from = (to + 1 + numbers.below(3)) % 4;
                copy(on, &buffers[from], &buffers[to]);
                expected[to] = expected[from];
            }
        }
        if round % 250 == 249 {
            for (at, buffer) in buffers.iter().enumerate() {
                if uniform(&reader, buffer, &mut scratch) != Some(expected[at]) {
                    failures.push(format!("round {round}: buffer {at} is not all {}", expected[at]));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn threads_share_a_device() {
    let device = open();
    let shared = Arc::new(device.allocate_buffer(1 << 20).expect("there is memory"));
    fill(&stream(&device, StreamPriority::Normal), &shared, 77);
    let threads = [1_u8, 2, 3, 4].map(|value| {
        let (device, shared) = (device.clone(), shared.clone());
        std::thread::spawn(move || {
            let on = stream(&device, StreamPriority::Normal);
            let reader = stream(&device, StreamPriority::High);
            let own = device.allocate_buffer(1 << 20).expect("there is memory");
            let (mut scratch, mut wrong) = (Vec::new(), 0);
            for _ in 0..200 {
                copy(&on, &shared, &own);
                wrong += usize::from(uniform(&reader, &own, &mut scratch) != Some(77));
                fill(&on, &own, value);
                wrong += usize::from(uniform(&reader, &own, &mut scratch) != Some(value));
            }
            wrong
        })
    });
    let wrong: usize = threads.map(|thread| thread.join().expect("it does not panic")).iter().sum();
    assert_eq!(wrong, 0);
}

/// Adds one to an `int`, so that a graph can be seen to run once for each launch.
const ADD_ONE: &str = "struct A { int *x; };\n\
                       extern \"C\" __global__ void add_one(const A a) { ++*a.x; }\n";

#[test]
#[ignore = "needs an NVIDIA GPU and NVRTC"]
fn kernels_run_in_order_with_copies() {
    let device = open();
    let kernels = CudaKernels::compile(&device, "add_one", ADD_ONE).expect("it compiles");
    let (mut x, mut host) = (Tensor::on(device), Tensor::empty());
    for round in 0..100 {
        x.copy_from_slice(&[1], &[round]).expect("it is copied");
        let launch = |kernel| kernels.launch(kernel, [1; 3], [1; 3], &[KernelArgument::Write(&x)]);
        launch("add_one").expect("it is enqueued");
        launch("add_one").expect("it is enqueued");
        x.copy_to_host_into(&mut host).expect("it is copied");
        assert_eq!(host.as_slice::<i32>().expect("int"), [round + 2]);
    }
    let arguments = [KernelArgument::Read(&host)];
    for (kernel, arguments) in [("add_two", &[][..]), ("add_one", &arguments)] {
        let error = kernels.launch(kernel, [1; 3], [1; 3], arguments).expect_err("it is invalid");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_graph_repeats_the_captured_work() {
    use cudarc::driver::result::memcpy_dtod_async;
    let device = open();
    let on = stream(&device, StreamPriority::Normal);
    let reader = stream(&device, StreamPriority::High);
    let [x, y] = [(); 2].map(|()| device.allocate_buffer(1 << 20).expect("there is memory"));
    fill(&on, &y, 6);
    let graph = on.capture(|raw| {
        // SAFETY: the buffers outlive the graph, which is launched in their order.
        unsafe { memcpy_dtod_async(y.address(), x.address(), 1 << 20, raw.cast()) }.expect("it is captured");
        Ok(())
    });
    let (graph, mut scratch) = (graph.expect("it is captured"), Vec::new());
    assert_eq!(uniform(&reader, &y, &mut scratch), Some(6), "capturing runs nothing");
    for value in 0..50 {
        fill(&on, &x, value);
        let (reads, writes) = (std::iter::once(&x), std::iter::once(&y));
        // SAFETY: the buffers exist, and `enqueue` waits for their uses.
        on.enqueue(reads, writes, |_| unsafe { graph.launch(&on) }).expect("it is enqueued");
        assert_eq!(uniform(&reader, &y, &mut scratch), Some(value));
    }
    assert!(on.capture(|_| on.wait()).is_err(), "a wait cannot be captured");
    fill(&on, &y, 9);
    assert_eq!(uniform(&reader, &y, &mut scratch), Some(9), "the stream stays usable");
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_steady_state_takes_no_memory() {
    let device = open();
    let host = Tensor::zeros::<f32>(&[1, 3, 1008, 1008]);
    let (mut tensor, mut back) = (Tensor::on(device.clone()), Tensor::empty());
    let mut free = Vec::new();
    for _ in 0..40 {
        tensor.copy_from_host(&host).expect("it is copied");
        drop(device.allocate_buffer(50 << 20).expect("there is memory"));
        tensor.copy_to_host_into(&mut back).expect("it is copied");
        free.push(device.memory().expect("the driver answers").free);
    }
    // Other programs on the GPU may change it a little.
    assert!(free[4].abs_diff(free[39]) < 64 << 20, "{free:?}");
    let mut small = Tensor::on(device.clone());
    small.reset_to(ElementType::F32, &[2]).expect("there is memory");
    let allocations = device.allocations();
    small.reset_to(ElementType::F32, &[1]).expect("it has memory");
    assert_eq!(device.allocations(), allocations);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn out_of_memory_is_an_error() {
    let device = open();
    let total = device.memory().expect("the driver answers").total;
    let error = device.allocate_buffer(2 * total as usize).expect_err("there is not as much");
    assert_eq!(error.kind(), ErrorKind::Execution);
    assert!(error.to_string().contains("out of memory (CUDA_ERROR_OUT_OF_MEMORY)"), "{error}");
    device.allocate_buffer(1 << 20).expect("there still is memory");
}
