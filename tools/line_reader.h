/* Lines out of a text file, plain or gzip. */
#ifndef STRATA_TOOLS_LINE_READER_H
#define STRATA_TOOLS_LINE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINE_LIMIT = 2048, LINE_BUFFER = 1 << 16 };

typedef struct line_reader {
    struct gzFile_s *file;
    const char *path; /* the caller's */
    uint32_t number;  /* of the line that was read last; the first is 1 */
    size_t at, filled;
    bool at_end;
    char problem[256]; /* why the last call failed */
    char line[LINE_LIMIT];
    char buffer[LINE_BUFFER];
} line_reader;

typedef enum line_status {
    LINE_READ,
    LINE_END,   /* there is no further line */
    LINE_ERROR, /* line_reader.problem says why */
} line_status;

/* Opens `path`, which must stay as long as the reader is open. False: problem says why. */
bool line_reader_open(line_reader *reader, const char *path);

/* Reads the next line into reader->line, without its line end ("\n" or "\r\n"). Refuses a line that is too long or
 * holds a zero byte, and a compressed file that is damaged or cut off. */
line_status line_reader_next(line_reader *reader);

/* Reads everything that follows the start of the file, of which no more was read than the first line. The bytes are the
 * caller's to free; NULL: problem says why. */
unsigned char *line_reader_take_all(line_reader *reader, size_t *size);

/* Reads `room` bytes, below 2 GiB, or what there is up to the end, out of a file of which no line was read; *size is
 * how many. False: problem says why there are no more, and *size bytes are good all the same. */
bool line_reader_read(line_reader *reader, void *to, size_t room, size_t *size);

void line_reader_close(line_reader *reader);

#endif
