#include <iostream>
#include <ocelli.hpp>

int main(int argc, char **argv) try {
    const ocelli::Prompts prompts({"dog", "tree"});
    ocelli::Detector detector;
    const ocelli::Image image(argc > 1 ? argv[1] : "");
    for (const ocelli::Detection &found : detector.detect(image, prompts).detections())
        std::cout << found.label << ' ' << found.score << " at " << found.box.x1 << ", " << found.box.y1 << '\n';
} catch (const ocelli::Exception &failed) {
    std::cerr << "error: " << failed.what() << '\n';
    return 1;
}
