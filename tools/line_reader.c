/* Lines by zlib, which also reads plain files. */
#include "tools/line_reader.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

bool line_reader_open(line_reader *reader, const char *path)
{
    *reader = (line_reader){.path = path};
    errno = 0;
    const int input = strcmp(path, "-") == 0 ? dup(STDIN_FILENO) : -1;
    reader->file = strcmp(path, "-") != 0 ? gzopen(path, "rb") : input >= 0 ? gzdopen(input, "rb") : NULL;
    if (!reader->file && input >= 0)
        close(input);
    if (!reader->file)
        snprintf(reader->problem, sizeof reader->problem, "%s", errno ? strerror(errno) : "out of host memory");
    return reader->file != NULL;
}

/* zlib's messages begin with the path, as the caller's do, or with "<fd:3>". */
static const char *without_path(const char *text, const char *path)
{
    const char *end = strncmp(text, "<fd:", 4) == 0 ? strstr(text, ">: ") : NULL;
    if (end)
        return end + 3;
    size_t length = strlen(path);
    bool named = strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0;
    return named ? text + length + 2 : text;
}

/* -1, with the reason in `problem`, if no byte can be read. The end of a truncated compressed file sets `cut`. */
static int read_some(line_reader *reader, void *to, size_t room)
{
    errno = 0;
    int bytes = gzread(reader->file, to, (unsigned)room);
    int code = Z_OK;
    const char *text = gzerror(reader->file, &code);
    if (bytes >= 0 && (code == Z_OK || code == Z_STREAM_END))
        return bytes;
    reader->cut = code == Z_BUF_ERROR;
    if (reader->cut)
        text = "the compressed file is cut off";
    else if (code == Z_ERRNO)
        text = strerror(errno);
    else
        text = without_path(text, reader->path);
    snprintf(reader->problem, sizeof reader->problem, "read error: %s", text);
    if (!reader->cut)
        return -1;
    return bytes > 0 ? bytes : 0;
}

static bool fill(line_reader *reader)
{
    int bytes = reader->cut ? 0 : read_some(reader, reader->buffer, sizeof reader->buffer);
    if (bytes < 0)
        return false;
    reader->at_end = bytes == 0;
    if (reader->at_end)
        return true;
    reader->at = 0;
    reader->filled = (size_t)bytes;
    return true;
}

/* Takes the buffer's part of the current line. False: the line is too long. */
static bool take_part(line_reader *reader, size_t *length, bool *complete)
{
    const char *from = reader->buffer + reader->at;
    size_t rest = reader->filled - reader->at;
    const char *end = memchr(from, '\n', rest);
    size_t part = end ? (size_t)(end - from) : rest;
    if (*length + part >= LINE_LIMIT) {
        snprintf(reader->problem, sizeof reader->problem, "line longer than %d characters", LINE_LIMIT - 1);
        return false;
    }
    memcpy(reader->line + *length, from, part);
    *length += part;
    reader->at += part + (end ? 1 : 0);
    *complete = end != NULL;
    return true;
}

line_status line_reader_next(line_reader *reader)
{
    size_t length = 0;
    bool complete = false;
    bool anything = false;
    reader->number++;
    while (!complete) {
        if (reader->at == reader->filled && !reader->at_end && !fill(reader))
            return LINE_ERROR;
        if (reader->at_end)
            break;
        anything = true;
        if (!take_part(reader, &length, &complete))
            return LINE_ERROR;
    }
    if (!anything)
        return LINE_END;
    reader->complete = complete;
    if (length > 0 && reader->line[length - 1] == '\r')
        length--;
    reader->line[length] = '\0';
    if (strlen(reader->line) != length) {
        snprintf(reader->problem, sizeof reader->problem, "zero byte in the line");
        return LINE_ERROR;
    }
    return LINE_READ;
}

void line_reader_rewind(line_reader *reader)
{
    reader->at = 0;
}

bool line_reader_read(line_reader *reader, void *to, size_t room, size_t *size)
{
    const size_t rest = reader->filled - reader->at, buffered = rest < room ? rest : room;
    memcpy(to, reader->buffer + reader->at, buffered);
    reader->at += buffered;
    *size = buffered;
    while (*size < room && !reader->at_end && !reader->cut) {
        int bytes = read_some(reader, (char *)to + *size, room - *size);
        if (bytes < 0)
            return false;
        *size += (size_t)bytes;
        reader->at_end = bytes == 0;
    }
    return !reader->cut;
}

void line_reader_close(line_reader *reader)
{
    if (reader->file)
        gzclose(reader->file);
    reader->file = NULL;
}
