#include "report.h"

#include "json_parts.h"

#include <stdlib.h>
#include <string.h>

struct report {
    FILE *out;
    bool json;
    json_t *root, *machine, *times, *calls, *remarks;
    size_t rows, targets, missed;
    const char *heading; /* printed with its first row */
    bool heading_calls;
};

report *report_begin(FILE *out, bool json)
{
    report *self = require_json(calloc(1, sizeof *self));
    self->out = out;
    self->json = json;
    self->root = require_json(json_object());
    self->machine = put(self->root, "machine", json_object());
    self->times = put(self->root, "nanoseconds", json_array());
    self->calls = put(self->root, "driver_calls", json_array());
    self->remarks = put(self->root, "remarks", json_array());
    return self;
}

void report_add_fact(void *to, const char *name, const char *text)
{
    report *self = to;
    put(self->machine, name, json_string(text));
    if (!self->json)
        fprintf(self->out, "%-16s %s\n", name, text);
}

void report_heading(report *self, const char *heading, bool calls)
{
    self->heading = heading;
    self->heading_calls = calls;
}

static void print_heading(report *self)
{
    if (!self->heading)
        return;
    fprintf(self->out, "\n%s\n", self->heading);
    if (self->heading_calls)
        fprintf(self->out, "  %-66s %s\n", "", "calls per operation");
    else
        fprintf(self->out, "  %-66s %11s %11s %11s  %s\n", "ns per operation", "bare", "Strata", "difference",
                "target");
    self->heading = NULL;
}

void report_remark(report *self, const char *text)
{
    append(self->remarks, json_string(text));
    if (self->json)
        return;
    print_heading(self);
    fprintf(self->out, "  %s\n", text);
}

/* ---- times ---- */

static double difference_of(const report_times *row)
{
    return row->strata - row->bare;
}

static bool has_both(const report_times *row)
{
    return row->bare >= 0 && row->strata >= 0;
}

/* The figure that the row's target limits. */
static double figure_of(const report_times *row)
{
    return row->kind == REPORT_ADDS_AT_MOST    ? difference_of(row)
           : row->kind == REPORT_TIMES_AT_MOST ? row->strata / row->bare
                                               : row->strata;
}

static bool times_met(const report_times *row)
{
    return figure_of(row) <= row->target;
}

static void print_figure(FILE *out, double figure, bool applies)
{
    if (applies)
        fprintf(out, " %11.1f", figure);
    else
        fprintf(out, " %11s", "-");
}

static void print_times(report *self, const report_times *row)
{
    print_heading(self);
    fprintf(self->out, "  %-66s", row->name);
    print_figure(self->out, row->bare, row->bare >= 0);
    print_figure(self->out, row->strata, row->strata >= 0);
    print_figure(self->out, difference_of(row), has_both(row));
    if (row->kind != REPORT_NO_TARGET)
        fprintf(self->out, "  %s at most %.5g%s: %s", row->kind == REPORT_ADDS_AT_MOST ? "adds" : "takes", row->target,
                row->kind == REPORT_TIMES_AT_MOST ? " times" : "", times_met(row) ? "met" : "MISSED");
    fputc('\n', self->out);
    fflush(self->out);
}

static json_t *figure_or_null(double figure, bool applies)
{
    return applies ? json_real(figure) : json_null();
}

void report_add_times(report *self, const report_times *row)
{
    bool targeted = row->kind != REPORT_NO_TARGET;
    self->rows++;
    self->targets += targeted;
    self->missed += targeted && !times_met(row);
    json_t *object = append(self->times, json_object());
    put(object, "name", json_string(row->name));
    put(object, "bare", figure_or_null(row->bare, row->bare >= 0));
    put(object, "strata", figure_or_null(row->strata, row->strata >= 0));
    put(object, "difference", figure_or_null(difference_of(row), has_both(row)));
    put(object, "target_for",
        targeted ? json_string(row->kind == REPORT_ADDS_AT_MOST    ? "difference"
                               : row->kind == REPORT_TIMES_AT_MOST ? "ratio"
                                                                   : "strata")
                 : json_null());
    put(object, "target", figure_or_null(row->target, targeted));
    put(object, "met", targeted ? json_boolean(times_met(row)) : json_null());
    if (!self->json)
        print_times(self, row);
}

/* ---- calls ---- */

static uint64_t count_of(const report_calls *row, const char *name)
{
    for (size_t i = 0; i < row->call_count; i++)
        if (strcmp(row->calls[i].name, name) == 0)
            return row->calls[i].count;
    return 0;
}

static bool calls_met(const report_calls *row)
{
    if (row->kind == REPORT_EXPECT_NO_CALL)
        return row->call_count == 0;
    for (size_t i = 0; i < row->expected_count; i++)
        if (count_of(row, row->expected[i].name) != row->expected[i].count * row->operations)
            return false;
    return true;
}

static double each(const report_calls *row, size_t i)
{
    return (double)row->calls[i].count / (double)row->operations;
}

static void print_calls(report *self, const report_calls *row)
{
    print_heading(self);
    fprintf(self->out, "  %-66s ", row->name);
    for (size_t i = 0; i < row->call_count; i++)
        fprintf(self->out, "%s%s %g", i ? ", " : "", row->calls[i].name, each(row, i));
    if (!row->call_count)
        fputs("none", self->out);
    if (row->kind != REPORT_EXPECT_NOTHING)
        fprintf(self->out, "  target %s", calls_met(row) ? "met" : "MISSED: expected");
    if (!calls_met(row)) {
        for (size_t i = 0; i < row->expected_count; i++)
            fprintf(self->out, "%s %s %llu", i ? "," : "", row->expected[i].name,
                    (unsigned long long)row->expected[i].count);
        if (row->kind == REPORT_EXPECT_NO_CALL)
            fputs(" none", self->out);
    }
    fputc('\n', self->out);
    fflush(self->out);
}

void report_add_calls(report *self, const report_calls *row)
{
    bool targeted = row->kind != REPORT_EXPECT_NOTHING;
    self->rows++;
    self->targets += targeted;
    self->missed += targeted && !calls_met(row);
    json_t *object = append(self->calls, json_object());
    put(object, "name", json_string(row->name));
    json_t *calls = put(object, "calls", json_object());
    for (size_t i = 0; i < row->call_count; i++)
        put(calls, row->calls[i].name, json_real(each(row, i)));
    json_t *expected = put(object, "expected", targeted ? json_object() : json_null());
    for (size_t i = 0; i < row->expected_count; i++)
        put(expected, row->expected[i].name, json_integer((json_int_t)row->expected[i].count));
    put(object, "met", targeted ? json_boolean(calls_met(row)) : json_null());
    if (!self->json)
        print_calls(self, row);
}

/* ---- the end ---- */

size_t report_finish(report *self, size_t *rows)
{
    size_t missed = self->missed;
    *rows = self->rows;
    put(self->root, "targets", json_integer((json_int_t)self->targets));
    put(self->root, "targets_missed", json_integer((json_int_t)missed));
    if (self->json) {
        json_dumpf(self->root, self->out, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        fputc('\n', self->out);
    } else {
        fprintf(self->out, "\n%zu of %zu targets met\n", self->targets - missed, self->targets);
    }
    json_decref(self->root);
    free(self);
    return missed;
}
