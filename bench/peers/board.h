/* What came of a run: facts, competitors, rows with a figure for each of them, and targets; printed as a table while
 * they come in, or as one JSON object at the end. */
#ifndef STRATA_BENCH_BOARD_H
#define STRATA_BENCH_BOARD_H

#include "peers.h"

#include <stdio.h>

enum { BOARD_NAME_SIZE = 96 };

typedef enum board_state {
    BOARD_NOTHING = 0, /* it does not apply */
    BOARD_FIGURE,
    BOARD_NO_MEMORY, /* an allocation failed */
    BOARD_CORRUPT,   /* the competitor was caught handing out memory that was not free */
} board_state;

typedef struct board_cell {
    double figure;
    size_t rounds; /* that it is the median of */
    board_state state;
} board_cell;

typedef struct board_row {
    char name[BOARD_NAME_SIZE];
    board_cell cells[PEERS_LIMIT];
} board_row;

typedef struct board_target {
    const char *row;
    const char *label; /* of the competitor */
    const char *what;  /* "takes at most" and its like, before the limit; "reaches at least" */
    double figure;
    double limit;
    bool at_least; /* else at most */
    bool missing;  /* there is no figure, which misses it */
} board_target;

typedef struct board board;

/* A board on `out`. With `json`, nothing is printed before board_finish. Ends the program without memory. */
board *board_begin(FILE *out, bool json);

/* Leaves targets out of the table: its figures are none. */
void board_judge_nothing(board *self);

/* Called before anything is printed, so that a line on the same terminal can make way. */
void board_before_print(board *self, void (*make_way)(void *data), void *data);

/* Facts first, then the competitors, then rows under headings. Texts that are passed live as long as the board. */
void board_add_fact(void *self, const char *name, const char *text);
void board_set_peers(board *self, const peer_choice *choices, size_t count);
void board_heading(board *self, const char *heading);
void board_add_row(board *self, const board_row *row);
void board_add_target(board *self, const board_target *target);
void board_remark(board *self, const char *text);

/* Prints the rest and frees the board. Returns how many targets were missed; *rows is how many rows there were. */
size_t board_finish(board *self, size_t *rows);

#endif
