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
    uint32_t number;  /* of the last line, from 1 */
    size_t at, filled;
    bool at_end;
    bool cut;          /* the compressed file is cut off; its last bytes were read, and `problem` says so */
    bool complete;     /* the last line had a line end */
    char problem[256]; /* why the last call failed */
    char line[LINE_LIMIT];
    char buffer[LINE_BUFFER];
} line_reader;

typedef enum line_status {
    LINE_READ,
    LINE_END,
    LINE_ERROR, /* see line_reader.problem */
} line_status;

/* "-" is standard input. `path` must live as long as the reader is open. False: `problem` has the reason. */
bool line_reader_open(line_reader *reader, const char *path);

/* Reads the next line into reader->line, without "\n" or "\r\n". Refuses a line that is too long or has a zero byte,
 * and a damaged compressed file. A truncated one ends with `cut`. */
line_status line_reader_next(line_reader *reader);

/* Goes back to the beginning of a file of which at most the first line was read. */
void line_reader_rewind(line_reader *reader);

/* Reads `room` bytes, below 2 GiB, or up to the end of the file; *size: how many. False: no more can be read, see
 * `problem`; the *size bytes are valid. */
bool line_reader_read(line_reader *reader, void *to, size_t room, size_t *size);

void line_reader_close(line_reader *reader);

#endif
