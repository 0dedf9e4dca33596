/* Kernels that fill memory with the pattern of kernels.h and check it: how a replay notices that two blocks share a
 * byte. driver/kernels/build makes pattern.ptx; the simulated driver has the same kernels in C. */
#include <stdint.h>

static __device__ __forceinline__ uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    x ^= x >> 31;
    return x;
}

/* The pattern's eight bytes from `offset`, any number. */
static __device__ __forceinline__ uint64_t eight_bytes(uint64_t seed, uint64_t offset)
{
    uint64_t index = offset / 8;
    unsigned shift = (unsigned)(offset % 8) * 8;
    uint64_t word = mix(seed + index);
    if (shift)
        word = word >> shift | mix(seed + index + 1) << (64 - shift);
    return word;
}

static __device__ __forceinline__ uint8_t one_byte(uint64_t seed, uint64_t offset)
{
    return (uint8_t)(mix(seed + offset / 8) >> (offset % 8 * 8));
}

/* Bytes up to a multiple of 16, vectors of 16 bytes, and bytes again. */
struct split {
    uint64_t head;
    uint64_t vectors;
    uint64_t tail;
};

static __device__ __forceinline__ split split_at_16(uint64_t address, uint64_t bytes)
{
    split parts;
    parts.head = (16 - address % 16) % 16;
    if (parts.head > bytes)
        parts.head = bytes;
    parts.vectors = (bytes - parts.head) / 16;
    parts.tail = bytes - parts.head - parts.vectors * 16;
    return parts;
}

/* The offset of the n-th byte of head and tail. */
static __device__ __forceinline__ uint64_t edge_offset(split parts, uint64_t n)
{
    return n < parts.head ? n : n + parts.vectors * 16;
}

extern "C" __global__ void strata_pattern_fill(uint64_t address, uint64_t bytes, uint64_t seed)
{
    split parts = split_at_16(address, bytes);
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    ulonglong2 *vectors = (ulonglong2 *)(address + parts.head);

    for (uint64_t n = thread; n < parts.vectors; n += threads) {
        uint64_t offset = parts.head + n * 16;
        vectors[n] = make_ulonglong2(eight_bytes(seed, offset), eight_bytes(seed, offset + 8));
    }
    for (uint64_t n = thread; n < parts.head + parts.tail; n += threads) {
        uint64_t offset = edge_offset(parts, n);
        *(uint8_t *)(address + offset) = one_byte(seed, offset);
    }
}

/* Counts the bytes of `difference`, an exclusive or, that are not zero; `first` sinks to the offset of the first of
 * them. */
static __device__ __forceinline__ unsigned count_wrong(uint64_t difference, uint64_t offset, uint64_t *first)
{
    unsigned wrong = 0;
    for (unsigned i = 0; i < 8; i++) {
        if (difference >> i * 8 & 0xff) {
            wrong++;
            if (offset + i < *first)
                *first = offset + i;
        }
    }
    return wrong;
}

/* result[0] grows by the number of bytes that differ; result[1] sinks to the offset of the first. */
extern "C" __global__ void strata_pattern_check(uint64_t address, uint64_t bytes, uint64_t seed, uint64_t result_address)
{
    split parts = split_at_16(address, bytes);
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    const ulonglong2 *vectors = (const ulonglong2 *)(address + parts.head);
    unsigned long long wrong = 0;
    uint64_t first = UINT64_MAX;

    for (uint64_t n = thread; n < parts.vectors; n += threads) {
        uint64_t offset = parts.head + n * 16;
        ulonglong2 found = vectors[n];
        uint64_t low = found.x ^ eight_bytes(seed, offset);
        uint64_t high = found.y ^ eight_bytes(seed, offset + 8);
        if (low | high) {
            wrong += count_wrong(low, offset, &first);
            wrong += count_wrong(high, offset + 8, &first);
        }
    }
    for (uint64_t n = thread; n < parts.head + parts.tail; n += threads) {
        uint64_t offset = edge_offset(parts, n);
        uint64_t difference = *(const uint8_t *)(address + offset) ^ one_byte(seed, offset);
        wrong += count_wrong(difference, offset, &first);
    }
    if (wrong) {
        unsigned long long *result = (unsigned long long *)result_address;
        atomicAdd(&result[0], wrong);
        atomicMin(&result[1], (unsigned long long)first);
    }
}
