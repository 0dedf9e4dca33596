#include "board.h"

#include "bench/json_parts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct board {
    FILE *out;
    bool json, judges_nothing;
    const peer_choice *choices;
    size_t peer_count;
    const char *heading;
    bool heading_due;
    void (*clear_line)(void *data);
    void *make_way_data;
    size_t row_count;
    size_t targets, missed;
    json_t *root, *machine, *peers, *json_rows, *json_targets, *remarks;
};

board *board_begin(FILE *out, bool json)
{
    board *self = require_json(calloc(1, sizeof *self));
    self->out = out;
    self->json = json;
    self->root = require_json(json_object());
    self->machine = put(self->root, "machine", json_object());
    self->peers = put(self->root, "competitors", json_array());
    self->json_rows = put(self->root, "rows", json_array());
    self->json_targets = put(self->root, "targets", json_array());
    self->remarks = put(self->root, "remarks", json_array());
    return self;
}

void board_before_print(board *self, void (*clear_line)(void *data), void *data)
{
    self->clear_line = clear_line;
    self->make_way_data = data;
}

static void begin_print(const board *self)
{
    if (self->clear_line)
        self->clear_line(self->make_way_data);
}

void board_add_fact(void *to, const char *name, const char *text)
{
    board *self = to;
    put(self->machine, name, json_string(text));
    if (!self->json)
        fprintf(self->out, "%-16s %s\n", name, text);
}

void board_set_peers(board *self, const peer_choice *choices, size_t count)
{
    self->choices = choices;
    self->peer_count = count;
    if (!self->json)
        fputs("\nCompetitors\n", self->out);
    for (size_t i = 0; i < count; i++) {
        json_t *object = append(self->peers, json_object());
        put(object, "label", json_string(choices[i].label));
        put(object, "kind", json_string(choices[i].kind->name));
        put(object, "text", json_string(choices[i].text));
        put(object, "about", json_string(choices[i].about));
        if (!self->json)
            fprintf(self->out, "  %-12s %s\n", choices[i].label, choices[i].about);
    }
    if (!self->json)
        fflush(self->out);
}

void board_heading(board *self, const char *heading)
{
    self->heading = heading;
    self->heading_due = true;
}

static void print_heading(board *self)
{
    if (!self->heading_due)
        return;
    self->heading_due = false;
    fprintf(self->out, "\n%s\n  %-72s", self->heading, "");
    for (size_t i = 0; i < self->peer_count; i++)
        fprintf(self->out, " %11s", self->choices[i].label);
    fputc('\n', self->out);
}

void board_remark(board *self, const char *text)
{
    append(self->remarks, json_string(text));
    if (self->json)
        return;
    begin_print(self);
    fprintf(self->out, "  %s\n", text);
    fflush(self->out);
}

/* ---- rows ---- */

static void print_cell(FILE *out, const board_cell *cell)
{
    static const char *const words[] = {
        [BOARD_NOTHING] = "-", [BOARD_NO_MEMORY] = "no memory", [BOARD_CORRUPT] = "corrupt"};
    if (cell->state != BOARD_FIGURE)
        fprintf(out, " %11s", words[cell->state]);
    else
        fprintf(out, cell->figure < 10 ? " %11.3f" : cell->figure < 10000 ? " %11.1f" : " %11.0f", cell->figure);
}

static json_t *json_of_cell(const board_cell *cell)
{
    static const char *const words[] = {[BOARD_NO_MEMORY] = "no memory", [BOARD_CORRUPT] = "corrupt"};
    if (cell->state == BOARD_FIGURE)
        return json_real(cell->figure);
    return cell->state == BOARD_NOTHING ? json_null() : json_string(words[cell->state]);
}

void board_add_row(board *self, const board_row *row)
{
    self->row_count++;
    json_t *object = append(self->json_rows, json_object());
    put(object, "heading", json_string(self->heading ? self->heading : ""));
    put(object, "name", json_string(row->name));
    json_t *figures = put(object, "figures", json_object());
    json_t *rounds = put(object, "rounds", json_object());
    for (size_t i = 0; i < self->peer_count; i++) {
        put(figures, self->choices[i].label, json_of_cell(&row->cells[i]));
        if (row->cells[i].state == BOARD_FIGURE)
            put(rounds, self->choices[i].label, json_integer((json_int_t)row->cells[i].rounds));
    }
    if (self->json)
        return;
    begin_print(self);
    print_heading(self);
    fprintf(self->out, "  %-72s", row->name);
    for (size_t i = 0; i < self->peer_count; i++)
        print_cell(self->out, &row->cells[i]);
    fputc('\n', self->out);
    fflush(self->out);
}

/* ---- targets ---- */

void board_judge_nothing(board *self)
{
    self->judges_nothing = true;
}

static bool is_met(const board_target *target)
{
    if (target->missing)
        return false;
    return target->at_least ? target->figure >= target->limit : target->figure <= target->limit;
}

void board_add_target(board *self, const board_target *target)
{
    const bool met = is_met(target);
    self->targets++;
    self->missed += !met;
    json_t *object = append(self->json_targets, json_object());
    put(object, "row", json_string(target->row));
    put(object, "competitor", json_string(target->label));
    put(object, "what", json_string(target->what));
    put(object, "figure", target->missing ? json_null() : json_real(target->figure));
    put(object, "limit", json_real(target->limit));
    put(object, "met", json_boolean(met));
    if (self->json || self->judges_nothing)
        return;
    begin_print(self);
    fprintf(self->out, "    target, %s: %s %g: ", target->label, target->what, target->limit);
    if (target->missing)
        fputs("MISSED, there is no figure\n", self->out);
    else
        fprintf(self->out, "%.4g, %s\n", target->figure, met ? "met" : "MISSED");
    fflush(self->out);
}

/* ---- the end ---- */

size_t board_finish(board *self, size_t *rows)
{
    const size_t missed = self->missed;
    *rows = self->row_count;
    json_t *corrupt = put(self->root, "corrupt", json_object());
    for (size_t i = 0; i < self->peer_count; i++)
        if (*self->choices[i].corrupt)
            put(corrupt, self->choices[i].label, json_string(self->choices[i].corrupt));
    put(self->root, "targets_missed", json_integer((json_int_t)missed));
    if (self->json) {
        json_dumpf(self->root, self->out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        fputc('\n', self->out);
    } else if (!self->judges_nothing) {
        fprintf(self->out, "\n%zu of %zu targets met\n", self->targets - missed, self->targets);
    }
    json_decref(self->root);
    free(self);
    return missed;
}
