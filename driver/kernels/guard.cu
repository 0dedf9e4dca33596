/* The guard's kernels: one fills a block and the red zones around it; the other checks pieces of memory for the byte
 * that they were filled with. There a block of threads checks one piece and alone writes its verdict, so nothing is set
 * up before the launch. driver/kernels/build makes guard.ptx; the simulated driver has the same kernels in C. */
#include <stdint.h>

struct piece { /* strata_guard_piece */
    uint64_t address;
    uint64_t bytes;
    uint64_t expected; /* a byte */
};

enum { SHOWN = 32 };

struct verdict { /* strata_guard_verdict */
    uint64_t wrong;
    uint64_t first;
    uint8_t found[SHOWN];
};

static __device__ __forceinline__ void look(uint64_t difference, uint64_t offset, unsigned bytes, uint64_t *wrong,
                                            uint64_t *first)
{
    for (unsigned i = 0; i < bytes; i++) {
        if (difference >> i * 8 & 0xff) {
            (*wrong)++;
            if (offset + i < *first)
                *first = offset + i;
        }
    }
}

/* Launched with one block of threads a piece. */
extern "C" __global__ void strata_guard_check(uint64_t pieces, uint64_t verdicts)
{
    __shared__ unsigned long long all_wrong, all_first;
    const piece here = ((const piece *)pieces)[blockIdx.x];
    verdict *to = (verdict *)verdicts + blockIdx.x;
    uint64_t word = here.expected * 0x0101010101010101ull;
    uint64_t head = (16 - here.address % 16) % 16;
    if (head > here.bytes)
        head = here.bytes;
    uint64_t vectors = (here.bytes - head) / 16;
    uint64_t tail = head + vectors * 16;
    uint64_t wrong = 0, first = UINT64_MAX;

    if (threadIdx.x == 0) {
        all_wrong = 0;
        all_first = UINT64_MAX;
    }
    __syncthreads();
    const ulonglong2 *vector = (const ulonglong2 *)(here.address + head);
    for (uint64_t n = threadIdx.x; n < vectors; n += blockDim.x) {
        ulonglong2 found = vector[n];
        uint64_t low = found.x ^ word, high = found.y ^ word;
        if (low | high) {
            look(low, head + n * 16, 8, &wrong, &first);
            look(high, head + n * 16 + 8, 8, &wrong, &first);
        }
    }
    for (uint64_t n = threadIdx.x; n < head; n += blockDim.x)
        look(*(const uint8_t *)(here.address + n) ^ here.expected, n, 1, &wrong, &first);
    for (uint64_t n = tail + threadIdx.x; n < here.bytes; n += blockDim.x)
        look(*(const uint8_t *)(here.address + n) ^ here.expected, n, 1, &wrong, &first);
    if (wrong) {
        atomicAdd(&all_wrong, (unsigned long long)wrong);
        atomicMin(&all_first, (unsigned long long)first);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        to->wrong = all_wrong;
        to->first = all_first;
    }
    if (all_wrong && threadIdx.x < SHOWN) {
        uint64_t offset = all_first + threadIdx.x;
        to->found[threadIdx.x] = offset < here.bytes ? *(const uint8_t *)(here.address + offset) : 0;
    }
}

static __device__ __forceinline__ void fill(uint64_t address, uint64_t bytes, uint8_t value)
{
    uint64_t thread = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    uint64_t word = value * 0x0101010101010101ull;
    uint64_t head = (16 - address % 16) % 16;
    if (head > bytes)
        head = bytes;
    uint64_t vectors = (bytes - head) / 16;
    uint64_t tail = head + vectors * 16;
    ulonglong2 *vector = (ulonglong2 *)(address + head);

    for (uint64_t n = thread; n < vectors; n += threads)
        vector[n] = make_ulonglong2(word, word);
    for (uint64_t n = thread; n < head; n += threads)
        *(uint8_t *)(address + n) = value;
    for (uint64_t n = tail + thread; n < bytes; n += threads)
        *(uint8_t *)(address + n) = value;
}

/* A zone of `front` bytes at `address`, the block, a zone of `back` bytes. `how`: the zones' byte, the block's byte
 * shifted by 8, and bits of strata_guard_fill_how. */
extern "C" __global__ void strata_guard_fill(uint64_t address, uint64_t front, uint64_t bytes, uint64_t back,
                                             uint64_t how)
{
    fill(address, front, (uint8_t)how);
    if (how & 0x10000)
        fill(address + front, bytes, (uint8_t)(how >> 8));
    fill(address + front + bytes, back, (uint8_t)how);
}
