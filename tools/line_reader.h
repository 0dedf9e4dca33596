/* Lines of a text file, plain or gzip. */
#ifndef STRATA_TOOLS_LINE_READER_H
#define STRATA_TOOLS_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_LIMIT = 2048, LINE_BUFFER = 1 << 16 };

typedef struct line_reader {
    struct gzFile_s *file;
    const char *path; /* owned by the caller */
    uint32_t number;  /* of the last line read, from 1 */
    size_t at, filled;
    bool at_end;
    char problem[256]; /* why the last call failed */
    char line[LINE_LIMIT];
    char buffer[LINE_BUFFER];
} line_reader;

typedef enum line_status {
    LINE_READ,
    LINE_END,   /* no further line */
    LINE_ERROR, /* line_reader.problem says why */
} line_status;

/* Opens `path`, which must live as long as the reader is open. False: `problem` has the reason. */
bool line_reader_open(line_reader *reader, const char *path);

/* Reads the next line into reader->line, without its line end ("\n" or "\r\n"). Refuses a line that is too long or has
 * a zero byte, and a damaged or truncated compressed file. */
line_status line_reader_next(line_reader *reader);

/* Reads the whole file, of which at most the first line was read. The caller frees the bytes; NULL: `problem` has the
 * reason. */
unsigned char *line_reader_take_all(line_reader *reader, size_t *size);

/* Reads `room` bytes, below 2 GiB, or up to the end of a file of which no line was read; *size receives how many.
 * False: `problem` says why no more can be read; the *size bytes are valid. */
bool line_reader_read(line_reader *reader, void *to, size_t room, size_t *size);

void line_reader_close(line_reader *reader);

#endif
