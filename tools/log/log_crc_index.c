/* CRC-32 is linear: the checksum of b is that of ab, less that of a moved over the length of b. Moving over n bytes is
 * a multiplication by x^(8n) modulo the polynomial (zlib's crc32_combine is the source); three factors from tables give
 * any n below 2^24, further ones the rest. */
#include "tools/log/log_crc_index.h"

#include "resources/logging/format.h"

#include <pthread.h>
#include <stdlib.h>

enum { LOG_CRC_STEP = 64, DIGIT_BITS = 8, DIGITS = 8 };

#define POLYNOMIAL UINT32_C(0xedb88320) /* of CRC-32, lowest bit first */
#define ONE        UINT32_C(0x80000000) /* x^0 */

/* powers[d][n]: x^(8 n 256^d). Written once. */
static uint32_t powers[DIGITS][1 << DIGIT_BITS];
static pthread_once_t powers_once = PTHREAD_ONCE_INIT;

/* a times b modulo the polynomial. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = ONE; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

static void make_powers(void)
{
    uint32_t base = ONE >> 8; /* x^8 */
    for (int digit = 0; digit < DIGITS; digit++) {
        powers[digit][0] = ONE;
        for (int n = 1; n < 1 << DIGIT_BITS; n++)
            powers[digit][n] = multiply(powers[digit][n - 1], base);
        base = multiply(powers[digit][(1 << DIGIT_BITS) - 1], base);
    }
}

/* A checksum moved over `count` bytes. */
static uint32_t move(uint32_t crc, uint64_t count)
{
    for (int digit = 0; count; digit++, count >>= DIGIT_BITS)
        if (count & 0xff)
            crc = multiply(powers[digit][count & 0xff], crc);
    return crc;
}

bool log_crc_index_make(log_crc_index *index, const unsigned char *bytes, size_t size)
{
    const size_t steps = size / LOG_CRC_STEP + 1;
    if (index->bytes == bytes && index->size == size)
        return true;
    pthread_once(&powers_once, make_powers);
    if (steps > index->room) {
        uint32_t *grown = realloc(index->at, steps * sizeof *grown);
        if (!grown)
            return false;
        index->at = grown;
        index->room = steps;
    }
    index->at[0] = 0;
    for (size_t i = 1; i < steps; i++)
        index->at[i] = log_crc(index->at[i - 1], bytes + (i - 1) * LOG_CRC_STEP, LOG_CRC_STEP);
    index->bytes = bytes;
    index->size = size;
    return true;
}

/* The checksum of the first `count` bytes. */
static uint32_t crc_up_to(const log_crc_index *index, size_t count)
{
    const size_t step = count / LOG_CRC_STEP;
    return log_crc(index->at[step], index->bytes + step * LOG_CRC_STEP, count % LOG_CRC_STEP);
}

uint32_t log_crc_index_of(const log_crc_index *index, size_t from, size_t to)
{
    return crc_up_to(index, to) ^ move(crc_up_to(index, from), to - from);
}

void log_crc_index_forget(log_crc_index *index)
{
    index->bytes = NULL;
}

void log_crc_index_free(log_crc_index *index)
{
    free(index->at);
    *index = (log_crc_index){0};
}
