/* Reads a log's file in pieces. zlib also reads plain files. */
#include "tools/line_reader.h"
#include "tools/log/log_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(log_problem *problem, const char *reason)
{
    snprintf(problem->text, sizeof problem->text, "%s", reason);
    return false;
}

typedef struct log_file {
    line_reader file;
    unsigned char room[LOG_READ_ROOM];
} log_file;

/* Reads the file. *whole: up to its end, or the reader's problem is the reason. */
static bool decode_file(log_file *self, log_decoder *decoder, bool *whole, log_problem *problem)
{
    size_t filled = 0, got, used;
    bool good, last;
    do {
        *whole = line_reader_read(&self->file, self->room + filled, LOG_READ_ROOM - filled, &got);
        last = !*whole || self->file.at_end;
        filled += got;
        good = log_decoder_read(decoder, self->room, filled, last, &used, problem);
        filled -= used;
        memmove(self->room, self->room + used, filled);
    } while (good && !last);
    return good;
}

static bool read_opened(log_file *self, log_contents *out, log_problem *problem)
{
    log_decoder *decoder = log_decoder_make(out);
    bool whole;
    if (!decoder)
        return refuse(problem, "no host memory");
    bool good = decode_file(self, decoder, &whole, problem);
    log_decoder_free(decoder);
    if (!whole && !good)
        return refuse(problem, self->file.problem);
    if (!whole)
        out->torn = 0; /* the file was truncated, not the writer interrupted */
    if (!whole && out->damages++ < LOG_DAMAGES)
        snprintf(out->damage[out->damages - 1].text, sizeof out->damage[0].text, "%s; what stands before that was read",
                 self->file.problem);
    if (good && !log_sort(out->records, out->count))
        good = refuse(problem, "no host memory");
    return good;
}

bool log_read_file(const char *path, log_contents *out, log_problem *problem)
{
    bool read = false;
    *out = (log_contents){0};
    log_file *self = malloc(sizeof *self);
    if (!self)
        return refuse(problem, "no host memory");
    if (line_reader_open(&self->file, path)) {
        read = read_opened(self, out, problem);
        line_reader_close(&self->file);
    } else {
        refuse(problem, self->file.problem);
    }
    free(self);
    if (!read)
        log_contents_free(out);
    return read;
}
