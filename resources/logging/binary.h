/* Encodes a binary log. Allocates nothing, knows no file. */
#ifndef STRATA_RESOURCES_LOGGING_BINARY_H
#define STRATA_RESOURCES_LOGGING_BINARY_H

#include "resources/logging/format.h"

#include <strata/logging.h>

/* What a reader knows, from the current batch; of `text`, from the whole file. */
typedef struct log_encoder {
    struct {
        uint64_t thread, number; /* of the thread's last record */
        uint32_t id;
        bool used;
    } threads[LOG_THREADS];
    struct {
        uint64_t handle;
        uint32_t id;
        bool used;
    } streams[LOG_STREAMS];
    strata_tag tags[LOG_TAGS]; /* 0: empty */
    bool text;                 /* the stack's text is in the file */
} log_encoder;

enum {
    LOG_RECORD_ROOM = 512, /* most bytes of a record with its definitions */
    LOG_TEXT_ROOM = 4096,  /* the stack's text is cut to this */
    LOG_BATCH_ROOM = LOG_BATCH_HEADER + LOG_TEXT_ROOM + 16 + 64 * LOG_RECORD_ROOM,
};

/* Writes a file's header. Also resets the encoder. */
void log_encode_header(log_encoder *encoder, int device, uint64_t wall_ns, unsigned char to[LOG_FILE_HEADER]);

/* Encodes as many records as fit, at least one, into `to` (LOG_BATCH_ROOM bytes). Returns their number; *bytes: the
 * length. */
size_t log_encode_batch(log_encoder *encoder, const strata_log_record *records, size_t count, const char *stack_text,
                        uint64_t dropped, unsigned char *to, size_t *bytes);

#endif
