/* Opens videos through the C library: sessions MODEL VIDEO… prints for each the frames of a session, and width and height of its last
   one, or the error. */

#include <stdio.h>

#include "ocelli.h"

static void open_video(const ocelli_detector_options *options, const char *path)
{
    ocelli_session *session = NULL;
    ocelli_result *result = NULL;
    ocelli_result_info info = {.struct_size = sizeof info};
    if (ocelli_session_create(options, path, &session) != OCELLI_OK) {
        printf("error: %s\n", ocelli_last_error());
        return;
    }
    const size_t frames = ocelli_session_frame_count(session);
    const float middle[] = {8, 8};
    if (ocelli_session_add_points(session, 1, frames - 1, middle, NULL, 1, &result) != OCELLI_OK)
        printf("error: %s\n", ocelli_last_error());
    else if (ocelli_result_get_info(result, &info) == OCELLI_OK)
        printf("%zu %u %u\n", frames, info.width, info.height);
    ocelli_result_free(result);
    ocelli_session_free(session);
}

int main(int argc, char **argv)
{
    ocelli_detector_options options;
    if (argc < 3 || ocelli_detector_options_init(&options, sizeof options) != OCELLI_OK)
        return 2;
    options.model = argv[1];
    options.engine = "embedded";
    options.threads = 1;
    for (int i = 2; i < argc; i++)
        open_video(&options, argv[i]);
    return 0;
}
