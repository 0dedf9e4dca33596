/* Images of modules. The driver is given no length of them, and believes what a binary says of itself; so that is
 * compared with the bytes that there are. What the parts contain is the driver's to check. */
#include "service/worker/worker.h"

#include <elf.h>
#include <string.h>

/* Of a fatbin (CUDA's fatbinary.h): magic, version, bytes of the head, bytes behind it. */
typedef struct fatbin_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes;
} fatbin_head;

static const uint32_t fatbin_magic = 0xba55ed50;
static const uint32_t wrapper_magic = 0x466243b1; /* of a struct that has an address of its process */

static bool lies_within(uint64_t offset, uint64_t bytes, size_t all)
{
    return offset <= all && bytes <= all - offset;
}

static bool has_table(uint64_t offset, uint64_t count, uint64_t entry_bytes, uint64_t expected, size_t all)
{
    return !count || (entry_bytes == expected && lies_within(offset, count * entry_bytes, all));
}

static bool sections_are_whole(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head)
{
    for (size_t i = 0; i < head->e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head->e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !lies_within(section.sh_offset, section.sh_size, bytes))
            return false;
    }
    return true;
}

static bool segments_are_whole(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head)
{
    for (size_t i = 0; i < head->e_phnum; i++) {
        Elf64_Phdr segment;
        memcpy(&segment, image + head->e_phoff + i * sizeof segment, sizeof segment);
        if (!lies_within(segment.p_offset, segment.p_filesz, bytes))
            return false;
    }
    return true;
}

static bool cubin_is_whole(const unsigned char *image, size_t bytes)
{
    Elf64_Ehdr head;
    if (bytes < sizeof head)
        return false;
    memcpy(&head, image, sizeof head);
    return head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_ident[EI_DATA] == ELFDATA2LSB &&
           has_table(head.e_shoff, head.e_shnum, head.e_shentsize, sizeof(Elf64_Shdr), bytes) &&
           has_table(head.e_phoff, head.e_phnum, head.e_phentsize, sizeof(Elf64_Phdr), bytes) &&
           (!head.e_shnum || head.e_shstrndx < head.e_shnum) && sections_are_whole(image, bytes, &head) &&
           segments_are_whole(image, bytes, &head);
}

static bool fatbin_is_whole(const unsigned char *image, size_t bytes)
{
    fatbin_head head;
    if (bytes < sizeof head)
        return false;
    memcpy(&head, image, sizeof head);
    return head.head_bytes >= sizeof head && lies_within(head.head_bytes, head.bytes, bytes);
}

bool worker_image_is_whole(const unsigned char *image, size_t bytes)
{
    uint32_t magic = 0;
    if (bytes >= sizeof magic)
        memcpy(&magic, image, sizeof magic);
    if (magic == wrapper_magic)
        return false;
    if (magic == fatbin_magic)
        return fatbin_is_whole(image, bytes);
    if (bytes >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0)
        return cubin_is_whole(image, bytes);
    return true; /* a text: it ends with a zero, which is added */
}
