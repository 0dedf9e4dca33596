/* From records to the bytes of a binary log. Allocates nothing, knows no file. */
#ifndef STRATA_RESOURCES_LOGGING_BINARY_H
#define STRATA_RESOURCES_LOGGING_BINARY_H

#include "resources/logging/format.h"

#include <strata/logging.h>

/* What the reader knows so far: of the batch, and whether it has the stack's text of the file. */
typedef struct log_encoder {
    struct {
        uint64_t thread, number; /* number of its last record */
        uint32_t id;
        bool used;
    } threads[LOG_THREADS];
    struct {
        uint64_t handle;
        uint32_t id;
        bool used;
    } streams[LOG_STREAMS];
    strata_tag tags[LOG_TAGS]; /* 0: none has the place */
    bool text;                 /* was written to the file */
} log_encoder;

enum {
    LOG_RECORD_ROOM = 512, /* bytes that a record with all of its definitions may take */
    LOG_TEXT_ROOM = 4096,  /* of the stack's text; the rest is cut off */
    LOG_BATCH_ROOM = LOG_BATCH_HEADER + LOG_TEXT_ROOM + 16 + 64 * LOG_RECORD_ROOM,
};

/* Writes the header of a file, which makes the encoder forget everything. */
void log_encode_header(log_encoder *encoder, int device, uint64_t wall_ns, unsigned char to[LOG_FILE_HEADER]);

/* Writes a batch of as many of the records as fit, at least one, to `to`, which has LOG_BATCH_ROOM bytes. Returns how
 * many they are; *bytes is the length of the batch. */
size_t log_encode_batch(log_encoder *encoder, const strata_log_record *records, size_t count, const char *stack_text,
                        uint64_t dropped, unsigned char *to, size_t *bytes);

#endif
