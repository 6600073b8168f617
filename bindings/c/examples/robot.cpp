// A robot that turns towards a dog: a camera thread pushes frames in its own format and never waits, the control loop takes
// the newest result and steers. The camera pans over an image that is read from a file.
//   robot IMAGE [FRAMES]
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <ocelli.hpp>
#include <thread>

namespace {

constexpr std::uint32_t WIDTH = 320, HEIGHT = 240;
// The camera's rows are padded.
constexpr std::size_t STRIDE = 1024;
constexpr auto PERIOD = std::chrono::milliseconds(33);

using Clock = std::chrono::steady_clock;

std::uint64_t nanoseconds(Clock::time_point time) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

// What the camera sees: a part of the scene, in the order blue, green, red.
void look(const ocelli_frame &scene, std::uint32_t left, std::vector<std::uint8_t> &pixels) {
    for (std::uint32_t y = 0; y < HEIGHT; ++y) {
        for (std::uint32_t x = 0; x < WIDTH; ++x) {
            // A small scene is repeated to the right.
            const std::uint32_t from_x = (left + x) % scene.width, from_y = y * scene.height / HEIGHT;
            const std::uint8_t *from = scene.data + from_y * scene.stride + std::size_t{from_x} * 3;
            std::uint8_t *to = pixels.data() + y * STRIDE + std::size_t{x} * 3;
            to[0] = from[2], to[1] = from[1], to[2] = from[0];
        }
    }
}

class Camera {
  public:
    Camera(ocelli::Pipeline &pipeline, const ocelli::Image &scene, int frames)
        : thread([this, &pipeline, &scene, frames] { run(pipeline, scene.frame(), frames); }) {}
    ~Camera() { thread.join(); }
    Camera(const Camera &) = delete;
    Camera &operator=(const Camera &) = delete;

    std::atomic<bool> failed{false};

  private:
    void run(ocelli::Pipeline &pipeline, const ocelli_frame &scene, int frames) try {
        std::vector<std::uint8_t> pixels(STRIDE * HEIGHT);
        for (int number = 0; number < frames; ++number) {
            look(scene, static_cast<std::uint32_t>(number) * 2, pixels);
            pipeline.push(ocelli::frame(pixels.data(), pixels.size(), WIDTH, HEIGHT, OCELLI_BGR8, STRIDE,
                                        nanoseconds(Clock::now())));
            std::this_thread::sleep_for(PERIOD);
        }
        pipeline.close();
    } catch (const ocelli::Exception &failure) {
        std::cerr << "camera: " << failure.what() << '\n';
        failed = true;
        pipeline.close();
    }

    std::thread thread;
};

} // namespace

int main(int argc, char **argv) try {
    if (argc < 2) {
        std::cerr << "usage: robot IMAGE [FRAMES]\n";
        return 2;
    }
    const ocelli::Image scene(argv[1]);
    ocelli::PipelineOptions options;
    options.policy = OCELLI_LATEST;
    options.latency = OCELLI_LOW;
    options.tracker = ocelli::tracker_options();
    ocelli::Pipeline pipeline({}, ocelli::Prompts({"dog"}), std::move(options));

    int results = 0, followed = 0;
    std::uint64_t last = 0;
    Camera camera(pipeline, scene, argc > 2 ? std::atoi(argv[2]) : 60);
    // The control loop has 20 ms for each turn; it does not wait longer for a result.
    for (bool ended = false; !ended;) {
        const ocelli::Received received = pipeline.receive(20);
        ended = received.ended;
        if (!received) continue;
        const ocelli_result_info info = received->info();
        if (results++ > 0 && info.timestamp_ns <= last) return 1;
        last = info.timestamp_ns;
        for (const ocelli::Track &dog : received->tracks()) {
            const float middle = (dog.box.x1 + dog.box.x2) / 2;
            const float turn = middle / WIDTH - 0.5f;
            std::cout << "frame " << info.index << ": dog " << dog.id << ", turn "
                      << (turn < -0.05f ? "left" : turn > 0.05f ? "right" : "not") << '\n';
            ++followed;
        }
    }
    std::cout << results << " results, " << followed << " with a dog\n";
    return camera.failed || followed == 0;
} catch (const ocelli::Exception &failure) {
    std::cerr << "error: " << failure.what() << '\n';
    return 1;
}
