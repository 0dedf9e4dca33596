#include "contest.h"

#include "bare.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void *contest_require(void *made)
{
    if (!made) {
        fprintf(stderr, "%s: no host memory\n", program_invocation_short_name);
        exit(EXIT_FAILURE);
    }
    return made;
}

bool contest_takes_part(const peer_choice *choice, bool device)
{
    return !*choice->corrupt && (!device || choice->device);
}

void contest_open(const contest *of, peer *peers, size_t streams, bool device)
{
    for (size_t i = 0; i < of->count; i++) {
        peers[i] = (peer){0};
        if (contest_takes_part(&of->choices[i], device))
            peer_open(&peers[i], &of->choices[i], streams, 0);
    }
}

void contest_close(const contest *of, peer *peers)
{
    for (size_t i = 0; i < of->count; i++)
        if (peers[i].choice)
            peer_close(&peers[i]);
}

void contest_give_room(contest *of, uint64_t bytes)
{
    for (size_t i = 0; i < of->count; i++)
        of->choices[i].room = bytes;
}

board_row contest_row(const contest *of, const char *name)
{
    board_row row = {0};
    snprintf(row.name, sizeof row.name, "%s", name);
    for (size_t i = 0; i < of->count; i++)
        if (*of->choices[i].corrupt)
            row.cells[i].state = BOARD_CORRUPT;
    return row;
}

void contest_measure(const contest *of, const peer *peers, entry *entries, bench_plan plan, bench_side side,
                     double scale, board_row *row)
{
    bench_side sides[PEERS_LIMIT] = {0};
    size_t whose[PEERS_LIMIT], count = 0, rounds[PEERS_LIMIT];
    double figures[PEERS_LIMIT];
    for (size_t i = 0; i < of->count; i++) {
        if (!peers[i].choice || *peers[i].choice->corrupt)
            continue;
        side.state = &entries[i];
        sides[count] = side;
        whose[count++] = i;
    }
    if (!count)
        return;
    plan.limit = of->seconds * 1e9;
    bench_measure_counting(of->rounds, plan, sides, count, figures, rounds);
    for (size_t n = 0; n < count; n++) {
        board_cell *cell = &row->cells[whose[n]];
        *cell = (board_cell){figures[n] * scale, rounds[n], BOARD_FIGURE};
        if (entries[whose[n]].no_memory)
            cell->state = BOARD_NO_MEMORY;
    }
}

void contest_target(const contest *of, const board_row *row, size_t which, const char *what, double figure,
                    double limit)
{
    board_add_target(of->board, &(board_target){.row = row->name,
                                                .label = of->choices[which].label,
                                                .what = what,
                                                .figure = figure,
                                                .limit = limit,
                                                .missing = row->cells[which].state != BOARD_FIGURE});
}
