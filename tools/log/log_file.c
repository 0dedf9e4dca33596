/* Reads a log's file in pieces. */
#include "tools/line_reader.h"
#include "tools/log/log_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool refuse(log_problem *problem, const char *reason)
{
    snprintf(problem->text, sizeof problem->text, "%s", reason);
    problem->too_large = false;
    return false;
}

/* Decodes a file. *whole: up to its end; else the reader's problem is the reason. */
static bool decode_file(line_reader *file, unsigned char *room, log_decoder *decoder, bool *whole, log_problem *problem)
{
    size_t filled = 0, got, used;
    bool good, last;
    do {
        *whole = line_reader_read(file, room + filled, LOG_READ_ROOM - filled, &got);
        last = !*whole || file->at_end;
        filled += got;
        good = log_decoder_read(decoder, room, filled, last, &used, problem);
        filled -= used;
        memmove(room, room + used, filled);
    } while (good && !last);
    return good;
}

/* Records what ends an incomplete file. */
static void note_incomplete(const line_reader *file, log_contents *out)
{
    out->cut = file->cut;
    out->torn = 0; /* the file was truncated, not the writer interrupted */
    if (out->damages++ < LOG_DAMAGES)
        snprintf(out->damage[out->damages - 1].text, sizeof out->damage[0].text, "%s; everything before that was read",
                 file->problem);
}

bool log_read_opened(line_reader *file, uint64_t most, log_contents *out, log_problem *problem)
{
    bool whole = true;
    *out = (log_contents){0};
    unsigned char *room = malloc(LOG_READ_ROOM);
    log_decoder *decoder = room ? log_decoder_make(out, most) : NULL;
    bool good = decoder ? decode_file(file, room, decoder, &whole, problem) : refuse(problem, "out of host memory");
    log_decoder_free(decoder);
    free(room);
    if (!whole && !good && !out->count)
        refuse(problem, file->problem);
    if (!whole && good)
        note_incomplete(file, out);
    if (good)
        good = log_sort_within(out->records, out->count, most, problem);
    if (!good)
        log_contents_free(out);
    return good;
}

bool log_read_file(const char *path, uint64_t most, log_contents *out, log_problem *problem)
{
    bool read = false;
    *out = (log_contents){0};
    line_reader *file = malloc(sizeof *file);
    if (!file)
        return refuse(problem, "out of host memory");
    if (line_reader_open(file, path)) {
        read = log_read_opened(file, most, out, problem);
        line_reader_close(file);
    } else {
        refuse(problem, file->problem);
    }
    free(file);
    return read;
}
