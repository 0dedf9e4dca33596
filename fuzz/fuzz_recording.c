/* The reader of recordings of a device service. The input is a file.
 *
 * What is accepted is consistent: each reference lies in an allocation that was made before, and each line is read
 * again with the same result. What is refused has a message that names the line. */
#include "fuzz/begin.h"

#include "service/replay_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int file = -1; /* in memory; inputs are written here first */
static char path[64];

static void check_refs(const replay_file *whole, const recorded_request *request, uint64_t line, uint64_t made)
{
    assert_true(request->ref_count <= STRATA_ARGUMENT_LIMIT && request->argument_count <= STRATA_ARGUMENT_LIMIT);
    for (size_t i = 0; i < request->ref_count; i++) {
        const recorded_ref *ref = &request->refs[i];
        assert_true(ref->number <= made);
        if (!ref->number)
            continue;
        const replay_allocation *allocation = &whole->allocations[ref->number - 1];
        assert_true(ref->offset <= allocation->bytes && ref->bytes <= allocation->bytes - ref->offset);
        assert_true(allocation->last_line >= line && allocation->last_line <= whole->lines);
    }
}

static void check_image(const recorded_request *request)
{
    if (request->kind != SERVICE_LOAD)
        return;
    unsigned char *image = malloc(request->image_bytes);
    assert_non_null(image);
    recording_image_read(request, image);
    free(image);
}

static void check_recording(const replay_file *whole)
{
    static recorded_request request;
    replay_position position = {0};
    recording_problem problem;
    const char *line;
    size_t length;
    uint64_t made = 0, modules = 0;
    assert_true(replay_file_next(whole, &position, &line, &length));
    while (replay_file_next(whole, &position, &line, &length)) {
        assert_true(recording_line_read(line, length, &request, &problem));
        made += request.kind == SERVICE_ALLOCATE;
        modules += request.kind == SERVICE_LOAD;
        check_refs(whole, &request, position.line, made);
        check_image(&request);
        assert_true(strlen(request.entry) <= RECORDING_NAME_LIMIT);
    }
    assert_true(position.line == whole->lines && made == whole->allocation_count && modules == whole->module_count);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    assert_true(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0);
    file = memfd_create("recording", 0);
    assert_true(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    replay_file whole;
    assert_int_equal(ftruncate(file, 0), 0);
    assert_true(pwrite(file, data, size, 0) == (ssize_t)size);
    if (replay_file_open(&whole, path) == STRATA_SUCCESS) {
        check_recording(&whole);
        replay_file_close(&whole);
        return 0;
    }
    assert_int_equal(strata_last_error()->status, STRATA_ERROR_SYNTAX);
    assert_non_null(strstr(strata_last_error()->message, ", line "));
    assert_null(whole.text);
    return 0;
}
