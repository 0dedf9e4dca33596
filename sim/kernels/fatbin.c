/* Fatbins: images of a module for several architectures in one container. Of those the PTX is of use here. */
#include "kernels/kernels.h"
#include <stdlib.h>
#include <string.h>

/* As CUDA's fatbinary.h has it. */
typedef struct fatbin_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes; /* behind the head */
} fatbin_head;

/* As the tool fatbinary of CUDA 13 writes it, before each image. */
typedef struct fatbin_entry {
    uint16_t kind, version;
    uint32_t head_bytes;
    uint64_t bytes; /* behind its head */
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t architecture; /* 90: compute_90 */
    uint64_t name;
    uint64_t flags;
    uint64_t reserved, uncompressed_bytes;
} fatbin_entry;

enum { KIND_PTX = 1, COMPRESSED = 0x2000 | 0x8000 /* LZ4, zstd */, ARCHITECTURE = 90 };

static bool is_of_use(const fatbin_entry *entry)
{
    return entry->kind == KIND_PTX && !(entry->flags & COMPRESSED) && entry->architecture <= ARCHITECTURE;
}

/* A driver takes the PTX of the newest architecture that its device has. */
CUresult sim_fatbin_copy_ptx(const void *image, char **text)
{
    fatbin_head head;
    fatbin_entry entry, best = {0};
    const char *found = NULL;
    memcpy(&head, image, sizeof head);
    if (head.head_bytes < sizeof head)
        return CUDA_ERROR_INVALID_IMAGE;
    const char *at = (const char *)image + head.head_bytes;
    for (uint64_t left = head.bytes; left > 0; left -= entry.head_bytes + entry.bytes) {
        if (left < sizeof entry)
            return CUDA_ERROR_INVALID_IMAGE;
        memcpy(&entry, at, sizeof entry);
        if (entry.head_bytes < sizeof entry || entry.head_bytes > left || entry.bytes > left - entry.head_bytes)
            return CUDA_ERROR_INVALID_IMAGE;
        if (is_of_use(&entry) && (!found || entry.architecture > best.architecture)) {
            best = entry;
            found = at + entry.head_bytes;
        }
        at += entry.head_bytes + entry.bytes;
    }
    if (!found)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    *text = malloc(best.bytes + 1);
    if (!*text)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(*text, found, best.bytes);
    (*text)[best.bytes] = '\0';
    return CUDA_SUCCESS;
}
