/* Checksums of any part of some bytes, in constant time each. */
#ifndef STRATA_TOOLS_LOG_LOG_CRC_INDEX_H
#define STRATA_TOOLS_LOG_LOG_CRC_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed: of no bytes. */
typedef struct log_crc_index {
    const unsigned char *bytes; /* owned by the caller; NULL: none */
    size_t size;
    uint32_t *at; /* CRC-32 of the first i * LOG_CRC_STEP bytes */
    size_t room;  /* elements of `at` */
} log_crc_index;

/* Indexes the bytes, which stay unchanged until the index is forgotten; once is enough. False without host memory. */
bool log_crc_index_make(log_crc_index *index, const unsigned char *bytes, size_t size);

/* log_crc(0, bytes + from, to - from); from <= to <= size. */
uint32_t log_crc_index_of(const log_crc_index *index, size_t from, size_t to);

/* Called before the bytes change. Keeps the host memory for the next index. */
void log_crc_index_forget(log_crc_index *index);
void log_crc_index_free(log_crc_index *index);

#endif
