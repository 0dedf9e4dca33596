/* Facts, competitors, rows with a figure for each competitor, and targets; printed as a table while they come in, or as
 * one JSON object at the end. */
#ifndef STRATA_BENCH_BOARD_H
#define STRATA_BENCH_BOARD_H

#include "peers.h"

#include <stdio.h>

enum { BOARD_NAME_SIZE = 96 };

typedef enum board_state {
    BOARD_NOTHING = 0, /* does not apply */
    BOARD_FIGURE,
    BOARD_NO_MEMORY,
    BOARD_CORRUPT, /* the competitor handed out memory that was not free */
} board_state;

typedef struct board_cell {
    double figure;
    size_t rounds; /* the figure is their median */
    board_state state;
} board_cell;

typedef struct board_row {
    char name[BOARD_NAME_SIZE];
    board_cell cells[PEERS_LIMIT];
} board_row;

typedef struct board_target {
    const char *row;
    const char *label;
    const char *what; /* printed before the limit: "takes at most", "reaches at least" */
    double figure;
    double limit;
    bool at_least; /* else at most */
    bool missing;  /* no figure: missed */
} board_target;

typedef struct board board;

/* Prints to `out`; with `json`, at board_finish. Exits without memory. */
board *board_begin(FILE *out, bool json);

/* Leaves the targets out. */
void board_judge_nothing(board *self);

/* `clear_line` is called before each print. */
void board_before_print(board *self, void (*clear_line)(void *data), void *data);

/* Facts come first, then competitors, then rows under headings. Texts must outlive the board. */
void board_add_fact(void *self, const char *name, const char *text);
void board_set_peers(board *self, const peer_choice *choices, size_t count);
void board_heading(board *self, const char *heading);
void board_add_row(board *self, const board_row *row);
void board_add_target(board *self, const board_target *target);
void board_remark(board *self, const char *text);

/* Prints the rest and frees the board. Returns the number of missed targets. */
size_t board_finish(board *self, size_t *rows);

#endif
