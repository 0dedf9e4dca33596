/* The host kernels of the guard's kernels (driver/kernels/guard.cu of the library). Valgrind is told the state of
 * filled bytes: zones and freed blocks are not addressable, fresh blocks unwritten. */
#include "kernels/kernels.h"
#include <string.h>

enum { SHOWN = 32, STRIDE = 4096 };

typedef struct checked_piece {
    uint64_t address;
    uint64_t bytes;
    uint64_t expected;
} checked_piece;

typedef struct guard_verdict {
    uint64_t wrong;
    uint64_t first;
    unsigned char found[SHOWN];
} guard_verdict;

static uint64_t parameter(const strata_sim_launch *launch, unsigned index)
{
    uint64_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

static bool all_are(const unsigned char *at, uint64_t bytes, unsigned char expected)
{
    return bytes == 0 || (at[0] == expected && memcmp(at, at + 1, (size_t)bytes - 1) == 0);
}

/* Compares stride by stride, and byte by byte only where a stride differs. */
static void judge(const unsigned char *at, const checked_piece *piece, guard_verdict *verdict)
{
    unsigned char expected = (unsigned char)piece->expected;
    *verdict = (guard_verdict){.first = UINT64_MAX};
    for (uint64_t from = 0, part; from < piece->bytes; from += part) {
        part = piece->bytes - from < STRIDE ? piece->bytes - from : STRIDE;
        if (all_are(at + from, part, expected))
            continue;
        for (uint64_t i = from; i < from + part; i++)
            if (at[i] != expected)
                verdict->first = verdict->wrong++ ? verdict->first : i;
    }
    if (verdict->wrong) {
        uint64_t left = piece->bytes - verdict->first;
        memcpy(verdict->found, at + verdict->first, (size_t)(left < SHOWN ? left : SHOWN));
    }
}

void sim_guard_check(strata_sim_launch *launch)
{
    uint64_t pieces_at = parameter(launch, 0);
    uint64_t verdicts_at = parameter(launch, 1);
    unsigned count = launch->grid[0];
    if (!launch->declare_read(launch, pieces_at, count * sizeof(checked_piece)) ||
        !launch->declare_write(launch, verdicts_at, count * sizeof(guard_verdict)))
        return;
    const checked_piece *pieces = launch->read(launch, pieces_at, count * sizeof *pieces);
    guard_verdict *verdicts = launch->write(launch, verdicts_at, count * sizeof *verdicts);
    for (unsigned i = 0; pieces && verdicts && i < count; i++) {
        const unsigned char *at = NULL;
        if (launch->declare_read(launch, pieces[i].address, pieces[i].bytes))
            at = launch->read(launch, pieces[i].address, pieces[i].bytes);
        if (!at)
            return;
        sim_debugger_look_away(); /* the bytes are the guard's */
        judge(at, &pieces[i], &verdicts[i]);
        sim_debugger_look_again();
        sim_bytes_written((const char *)&verdicts[i], sizeof verdicts[i]);
    }
}

enum { FILL_BLOCK = 0x10000, FILL_DEAD = 0x20000, FILL_SILENT = 0x40000 }; /* strata_guard_fill_how */

/* Declares bytes as written, and returns them. NULL after an illegal access, or if there are no bytes. */
static char *declare(strata_sim_launch *launch, uint64_t address, uint64_t bytes)
{
    if (bytes == 0 || !launch->declare_write(launch, address, bytes))
        return NULL;
    return launch->write(launch, address, bytes);
}

void sim_guard_fill(strata_sim_launch *launch)
{
    uint64_t address = parameter(launch, 0);
    uint64_t front = parameter(launch, 1);
    uint64_t bytes = parameter(launch, 2);
    uint64_t back = parameter(launch, 3);
    uint64_t how = parameter(launch, 4);
    bool tell = !(how & FILL_SILENT);
    const uint64_t starts[] = {address, address + front, address + front + bytes};
    const uint64_t sizes[] = {front, how & FILL_BLOCK ? bytes : 0, back};
    for (int i = 0; i < 3; i++) {
        char *memory = declare(launch, starts[i], sizes[i]);
        if (!memory)
            continue;
        bool zone = i != 1;
        memset(memory, (int)(zone ? how & 0xff : how >> 8 & 0xff), (size_t)sizes[i]);
        if (tell && (zone || (how & FILL_DEAD)))
            sim_bytes_fence(memory, sizes[i]);
        else if (tell)
            sim_bytes_unwritten(memory, sizes[i]);
    }
}
