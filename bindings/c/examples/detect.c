#include <ocelli.h>
#include <stdio.h>

int main(int argc, char **argv) {
    const char *names[] = {"dog", "tree"};
    ocelli_prompts *prompts = NULL;
    ocelli_detector *detector = NULL;
    ocelli_image *image = NULL;
    ocelli_result *result = NULL;
    ocelli_frame frame = {.struct_size = sizeof frame};
    const int failed = ocelli_prompts_create(names, 2, &prompts) || ocelli_detector_create(NULL, &detector) ||
                       ocelli_image_open(argc > 1 ? argv[1] : NULL, &image) || ocelli_image_frame(image, &frame) ||
                       ocelli_detector_detect(detector, &frame, prompts, &result);
    if (failed) fprintf(stderr, "error: %s\n", ocelli_last_error());
    for (size_t i = 0; !failed && i < ocelli_result_detection_count(result); i++) {
        ocelli_detection found = {.struct_size = sizeof found};
        if (ocelli_result_get_detection(result, i, &found)) continue;
        printf("%s %.2f [%.0f, %.0f, %.0f, %.0f]\n", found.label, found.score, found.x1, found.y1, found.x2, found.y2);
    }
    ocelli_result_free(result);
    ocelli_image_free(image);
    ocelli_detector_free(detector);
    ocelli_prompts_free(prompts);
    return failed;
}
