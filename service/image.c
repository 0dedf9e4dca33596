/* Images of modules. The driver is given no length of them, and believes what a binary says of itself; so that is
 * compared with the bytes that there are. What the parts contain is the driver's to check. */
#include "service/image.h"

#include "core/base/error.h"

#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The head of a fatbin (CUDA's fatbinary.h): magic, version, bytes of the head, bytes behind it. */
typedef struct fatbin_head {
    uint32_t magic;
    uint16_t version, head_bytes;
    uint64_t bytes;
} fatbin_head;

/* The head of each image in a fatbin, as the tool fatbinary of CUDA 13 writes it; the image follows the head. */
typedef struct fatbin_entry {
    uint16_t kind, version;
    uint32_t head_bytes;
    uint64_t bytes; /* behind its head */
    uint32_t compressed_bytes, options_offset;
    uint16_t minor, major;
    uint32_t architecture; /* 90: sm_90 */
    uint64_t name;
    uint64_t flags;
    uint64_t reserved, uncompressed_bytes;
} fatbin_entry;

enum { FATBIN_PTX = 1 };

static const uint32_t fatbin_magic = 0xba55ed50;
static const uint32_t wrapper_magic = 0x466243b1; /* of a struct that has an address of its process */

static uint32_t magic_of(const void *image, size_t bytes)
{
    uint32_t magic = 0;
    if (bytes >= sizeof magic)
        memcpy(&magic, image, sizeof magic);
    return magic;
}

static bool is_elf(const void *image, size_t bytes)
{
    return bytes >= SELFMAG && memcmp(image, ELFMAG, SELFMAG) == 0;
}

/* ---- are they whole ---- */

static bool lies_within(uint64_t offset, uint64_t bytes, size_t all)
{
    return offset <= all && bytes <= all - offset;
}

static bool has_table(uint64_t offset, uint64_t count, uint64_t entry_bytes, uint64_t expected, size_t all)
{
    return !count || (entry_bytes == expected && count <= all / expected && lies_within(offset, count * expected, all));
}

/* Lengths of an ELF file's tables. */
typedef struct elf_counts {
    uint64_t sections, segments, names; /* the last is the number of the section with their names */
} elf_counts;

/* Reads the lengths, of which the first section has those that the head has no room for ("extended numbering" of the
 * ELF specification). False: they are not in the file, or would have had room. */
static bool read_counts(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head, elf_counts *counts)
{
    Elf64_Shdr first;
    const bool extended =
        (!head->e_shnum && head->e_shoff) || head->e_phnum == PN_XNUM || head->e_shstrndx == SHN_XINDEX;
    *counts = (elf_counts){.sections = head->e_shnum, .segments = head->e_phnum, .names = head->e_shstrndx};
    if (!extended)
        return true;
    if (!head->e_shoff || !lies_within(head->e_shoff, sizeof first, bytes))
        return false;
    memcpy(&first, image + head->e_shoff, sizeof first);
    if (!head->e_shnum)
        counts->sections = first.sh_size;
    if (head->e_phnum == PN_XNUM)
        counts->segments = first.sh_info;
    if (head->e_shstrndx == SHN_XINDEX)
        counts->names = first.sh_link;
    return counts->sections && counts->segments >= head->e_phnum;
}

static bool sections_are_whole(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head, uint64_t count)
{
    for (size_t i = 0; i < count; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head->e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS && !lies_within(section.sh_offset, section.sh_size, bytes))
            return false;
    }
    return true;
}

static bool segments_are_whole(const unsigned char *image, size_t bytes, const Elf64_Ehdr *head, uint64_t count)
{
    for (size_t i = 0; i < count; i++) {
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
    elf_counts counts;
    if (bytes < sizeof head)
        return false;
    memcpy(&head, image, sizeof head);
    return head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_ident[EI_DATA] == ELFDATA2LSB &&
           read_counts(image, bytes, &head, &counts) &&
           has_table(head.e_shoff, counts.sections, head.e_shentsize, sizeof(Elf64_Shdr), bytes) &&
           has_table(head.e_phoff, counts.segments, head.e_phentsize, sizeof(Elf64_Phdr), bytes) &&
           (!counts.sections || counts.names < counts.sections) &&
           sections_are_whole(image, bytes, &head, counts.sections) &&
           segments_are_whole(image, bytes, &head, counts.segments);
}

/* Sets *entry to the entry at *at of a fatbin, and *at behind it. False: there is none, or it is not whole; *at is then
 * the end if none is left. */
static bool next_entry(const unsigned char *image, size_t end, size_t *at, fatbin_entry *entry)
{
    if (end - *at < sizeof *entry)
        return false;
    memcpy(entry, image + *at, sizeof *entry);
    if (entry->head_bytes < sizeof *entry || entry->head_bytes > end - *at ||
        entry->bytes > end - *at - entry->head_bytes)
        return false;
    *at += entry->head_bytes + (size_t)entry->bytes;
    return true;
}

static bool fatbin_is_whole(const unsigned char *image, size_t bytes)
{
    fatbin_head head;
    fatbin_entry entry;
    if (bytes < sizeof head)
        return false;
    memcpy(&head, image, sizeof head);
    if (head.head_bytes < sizeof head || !lies_within(head.head_bytes, head.bytes, bytes))
        return false;
    const size_t end = head.head_bytes + (size_t)head.bytes;
    size_t at = head.head_bytes;
    while (next_entry(image, end, &at, &entry))
        ;
    return at == end;
}

static bool is_whole(const unsigned char *image, size_t bytes)
{
    if (magic_of(image, bytes) == wrapper_magic)
        return false;
    if (magic_of(image, bytes) == fatbin_magic)
        return fatbin_is_whole(image, bytes);
    return !is_elf(image, bytes) || cubin_is_whole(image, bytes); /* a text ends with a zero, which is added */
}

strata_status service_image_check(const void *image, size_t bytes)
{
    return is_whole(image, bytes)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "the image of a module of %zu bytes is not whole: its head says that there are more, or "
                             "it contains an address; load PTX, a cubin or a fatbin with all its bytes",
                             bytes);
}

/* ---- what they are for ---- */

typedef struct writer {
    char *text;
    size_t length;
    bool full;
} writer;

static void put(writer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(writer *out, const char *format, ...)
{
    static const char more[] = " ...";
    const size_t room = SERVICE_IMAGE_TEXT - out->length - sizeof more + 1;
    va_list arguments;
    va_start(arguments, format);
    const int length = out->full ? 0 : vsnprintf(out->text + out->length, room, format, arguments);
    va_end(arguments);
    if (length >= 0 && (size_t)length < room) {
        out->length += (size_t)length;
        return;
    }
    memcpy(out->text + out->length, more, sizeof more);
    out->full = true;
}

/* The architecture in an ELF file's flags. CUDA 13's ptxas writes the second ABI, and so does that of 12.9 from sm_100
 * on. */
static unsigned architecture_of(const Elf64_Ehdr *head)
{
    enum { FIRST_ABI = 7 };
    return head->e_ident[EI_ABIVERSION] > FIRST_ABI ? head->e_flags >> 8 & 0xff : head->e_flags & 0xff;
}

static void describe_cubin(writer *out, const void *image)
{
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    if (head.e_machine == EM_CUDA)
        put(out, "a cubin for sm_%u", architecture_of(&head));
    else
        put(out, "an ELF file that is no cubin (machine %u)", (unsigned)head.e_machine);
}

static void describe_fatbin(writer *out, const unsigned char *image)
{
    fatbin_head head;
    fatbin_entry entry;
    memcpy(&head, image, sizeof head);
    const size_t first = head.head_bytes;
    put(out, "a fatbin");
    for (size_t at = first, before = first; next_entry(image, first + (size_t)head.bytes, &at, &entry); before = at)
        put(out, entry.kind == FATBIN_PTX ? "%s compute_%u (PTX)" : "%s sm_%u", before == first ? " for" : ",",
            (unsigned)entry.architecture);
}

void service_image_describe(const void *image, size_t bytes, char text[SERVICE_IMAGE_TEXT])
{
    writer out = {.text = text};
    if (magic_of(image, bytes) == fatbin_magic)
        describe_fatbin(&out, image);
    else if (is_elf(image, bytes))
        describe_cubin(&out, image);
    else
        put(&out, "PTX");
}
