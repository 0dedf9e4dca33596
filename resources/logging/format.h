/* The binary log, `.slog`: what is in it, for the sink that writes it and the tool that reads it. docs/formats/slog.md
 * describes it byte by byte.
 *
 * All numbers are little endian. A file is a header and batches. A batch is written with one call and checked as a
 * whole, so that a file that was cut off ends with a batch of which a part is missing, and one that was damaged is
 * recognised. In a batch there are entries of a few bytes: records, and definitions of the threads, streams and tags
 * that later records name by a small number. */
#ifndef STRATA_RESOURCES_LOGGING_FORMAT_H
#define STRATA_RESOURCES_LOGGING_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_FILE_MAGIC  "\x89SLOG\r\n\x1a"   /* 8 bytes, without the terminating zero */
#define LOG_BATCH_MAGIC UINT32_C(0x54424c53) /* "SLBT" */

enum {
    LOG_FILE_VERSION = 1,

    /* The header of a file: magic[8], version u32, bytes of the header u32, CRC-32 of what follows u32, process u32,
     * device i32, zero u32, wall clock of the beginning u64. */
    LOG_FILE_HEADER = 40,
    LOG_FILE_CHECKED = 20, /* from here on */

    /* The header of a batch: magic u32, bytes of the entries u32, CRC-32 of what follows u32, records u32, records
     * dropped so far u64, monotonic time u64, and the wall clock at that time u64. The first record's time counts from
     * there. */
    LOG_BATCH_HEADER = 40,
    LOG_BATCH_CHECKED = 12,
    LOG_BATCH_BYTES = 1 << 20, /* entries of a batch, at most */

    /* What numbers stand for: so many at a time. */
    LOG_THREADS = 64,
    LOG_STREAMS = 64,
    LOG_TAGS = 1024,

    /* An entry's first byte: below 16 the kind of a record, with flags in the high half; these otherwise. Numbers are
     * LEB128, those that may be negative with the sign in the lowest bit. */
    LOG_ENTRY_TEXT = 0x00,   /* length, bytes: the stack that is recorded */
    LOG_ENTRY_THREAD = 0x10, /* place byte, number, the system's number */
    LOG_ENTRY_STREAM = 0x20, /* place byte, handle, stream id */
    LOG_ENTRY_TAG = 0x30,    /* tag, length, bytes */

    /* The second byte of a record: what follows, in this order, where it is set. */
    LOG_HAS_THREAD = 0x01,   /* place byte: not the thread of the record before */
    LOG_HAS_STREAM = 0x02,   /* place byte: not the stream of the record before */
    LOG_HAS_NUMBER = 0x04,   /* not one more than that of the record before of this thread */
    LOG_HAS_STATUS = 0x08,   /* byte: a failure */
    LOG_HAS_DURATION = 0x10, /* nanoseconds */
    LOG_HAS_BLOCK = 0x20,    /* address (signed, from the record before with a block), slot, generation */
    LOG_HAS_TAG = 0x40,
    LOG_HAS_MORE = 0x80, /* byte: the alignment's logarithm << 2 | access */
    /* Then always: time (signed, nanoseconds from the record before), requested bytes, and usable bytes less those
     * (signed). */
};

/* CRC-32 as in zlib and Ethernet; begins with 0, goes on with what it answered. */
uint32_t log_crc(uint32_t crc, const void *bytes, size_t count);

static inline void log_put_u32(unsigned char *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static inline void log_put_u64(unsigned char *to, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        to[i] = (unsigned char)(value >> 8 * i);
}

static inline uint32_t log_get_u32(const unsigned char *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static inline uint64_t log_get_u64(const unsigned char *from)
{
    return log_get_u32(from) | (uint64_t)log_get_u32(from + 4) << 32;
}

/* A difference with its sign in the lowest bit: small ones of either sign stay small. */
static inline uint64_t log_fold(uint64_t difference)
{
    return difference << 1 ^ (difference >> 63 ? UINT64_MAX : 0);
}

static inline uint64_t log_unfold(uint64_t folded)
{
    return folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0);
}

/* Where threads, streams and tags have their places. */
static inline unsigned log_thread_index(uint64_t thread)
{
    return (unsigned)(thread % LOG_THREADS);
}

static inline unsigned log_stream_index(uint64_t handle, uint32_t id)
{
    return (unsigned)((handle ^ handle >> 6 ^ handle >> 12 ^ (uint64_t)id * 31) % LOG_STREAMS);
}

#endif
