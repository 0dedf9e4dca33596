/* The file of a recording: buffered, until a write fails. */
#ifndef STRATA_SERVICE_RECORDER_FILE_H
#define STRATA_SERVICE_RECORDER_FILE_H

#include "core/base/descriptor_mark.h"

#include <strata/status.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORDER_ROOM = 1 << 16 };

/* The service's thread alone, but for `failed`. */
typedef struct recorder_file {
    int descriptor;
    strata_descriptor_mark mark;
    _Atomic bool failed; /* a write failed: nothing is written any more. Any thread, relaxed */
    char *path;          /* a copy; constant */
    size_t filled;
    char buffer[RECORDER_ROOM];
} recorder_file;

/* Makes the file, or opens a device. %d in the path is the service's device, %p the process. Errors: INVALID_VALUE (no
 * path; another letter behind a %), IO, OUT_OF_HOST_MEMORY. */
strata_status recorder_file_open(recorder_file *file, const char *given, int device);
void recorder_file_close(recorder_file *file);
void recorder_file_flush(recorder_file *file);

/* Adds text of 512 bytes at most; what is longer is cut off. */
void recorder_file_print(recorder_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
void recorder_file_put(recorder_file *file, char character);

/* Adds two digits for each byte. */
void recorder_file_put_hex(recorder_file *file, const void *bytes, size_t count);

#endif
