#include "tools/demo/report.h"

#include "tools/command.h"
#include "tools/json_values.h"
#include "tools/plain_text.h"
#include "tools/size_words.h"

#include <inttypes.h>
#include <math.h>

static const char *form_name(const demo *of)
{
    return of->settings.form == STRATA_SERVICE_ISOLATED ? "isolated" : "process";
}

static bool is_right(const demo *of, const demo_way *way)
{
    return way->status == STRATA_SUCCESS && way->difference.wrong == 0 && way->batches == of->settings.batches;
}

static double gigaflops(const demo *of, const demo_way *way)
{
    return is_right(of, way) && way->time ? demo_operations(of) / (double)way->time : 0;
}

/* ---- text ---- */

static void print_setting(const demo_report *report, FILE *to)
{
    const demo *of = report->of;
    const strata_driver_info *driver = report->driver;
    fprintf(to, "%-20s %s, CUDA %d.%d (%s)\n", "driver",
            driver->simulated ? "simulated" : plain(command_driver_word(driver)).text, driver->version / 1000,
            driver->version % 1000 / 10, plain(driver->library).text);
    fprintf(to, "%-20s %d: %s, %s\n", "device", report->device->ordinal, report->device->name,
            words_of_bytes(report->device->total_bytes).text);
    fprintf(to, "%-20s max(A * B + bias, 0), %" PRIu32 " matrices A of %" PRIu32 " by %" PRIu32 " floats\n", "computed",
            of->settings.batches, of->settings.n, of->settings.n);
    fprintf(to, "%-20s %s\n", "products by", *of->product ? plain(of->product).text : "none");
    if (*of->without_blas)
        fprintf(to, "%-20s %s\n", "  not by cuBLAS", plain(of->without_blas).text);
    fprintf(to, "%-20s %s\n", "stack", of->stack);
    fprintf(to, "%-20s %s in, %s out, with each way\n\n", "copied", words_of_bytes(demo_bytes_each_way(of)).text,
            words_of_bytes(demo_bytes_each_way(of)).text);
}

static void print_budget(const demo_way *way, FILE *to)
{
    if (!way->budget_known) {
        fprintf(to, "  in the worker\n");
        return;
    }
    fprintf(to, "  %s of %s", words_of_bytes(way->peak).text, words_of_bytes(way->limit).text);
    if (way->waits)
        fprintf(to, ", %s waits", words_of_count(way->waits).text);
    fputc('\n', to);
}

static void print_ways(const demo *of, FILE *to)
{
    fprintf(to, "%-20s %10s %10s %10s %16s  %s\n", "", "ready in", "time", "GFLOP/s", "furthest off", "budget: peak");
    for (size_t i = 0; i < DEMO_WAYS; i++) {
        const demo_way *way = &of->ways[i];
        if (way->status != STRATA_SUCCESS) {
            fprintf(to, "%-20s failed: %s\n", way->name, plain(way->problem).text);
            continue;
        }
        fprintf(to, "%-20s %10s %10s %10.1f %16.3g", way->name, words_of_duration(way->setup).text,
                words_of_duration(way->time).text, gigaflops(of, way), way->difference.largest);
        print_budget(way, to);
    }
}

static void print_verdict(const demo *of, FILE *to)
{
    fputc('\n', to);
    for (size_t i = 0; i < DEMO_WAYS; i++)
        if (of->ways[i].own_product && !of->own_product)
            fprintf(to, "%-20s has no cuBLAS: a kernel of the demonstration multiplied\n", of->ways[i].name);
    for (size_t i = 0; i < DEMO_WAYS; i++)
        if (of->ways[i].difference.wrong)
            fprintf(to, "%-20s %s: %s of %s numbers are further off than rounding can be\n", "WRONG", of->ways[i].name,
                    words_of_count(of->ways[i].difference.wrong).text,
                    words_of_count(of->ways[i].difference.compared).text);
    if (demo_is_right(of))
        fprintf(to,
                "%-20s all three ways gave the CPU's results: %s numbers compared, each as near as rounding allows\n",
                "compared", words_of_count(of->ways[0].difference.compared * DEMO_WAYS).text);
}

bool demo_report_text(const demo_report *report, FILE *to)
{
    print_setting(report, to);
    print_ways(report->of, to);
    print_verdict(report->of, to);
    return fflush(to) == 0 && !ferror(to);
}

/* ---- JSON ---- */

static json_t *way_object(const demo *of, const demo_way *way)
{
    json_t *object = json_object();
    json_object_set_new(object, "name", json_string(way->name));
    json_object_set_new(object, "right", json_boolean(is_right(of, way)));
    json_object_set_new(object, "status", json_string(strata_status_name(way->status)));
    if (way->status != STRATA_SUCCESS)
        json_object_set_new(object, "problem", json_text(way->problem));
    json_object_set_new(object, "own_product", json_boolean(way->own_product));
    json_set_number(object, "batches", way->batches);
    json_set_number(object, "setup_ns", way->setup);
    json_set_number(object, "time_ns", way->time);
    json_object_set_new(object, "gflops", json_real(gigaflops(of, way)));
    json_set_number(object, "compared", way->difference.compared);
    json_set_number(object, "wrong", way->difference.wrong);
    json_object_set_new(object, "largest_difference",
                        isfinite(way->difference.largest) ? json_real(way->difference.largest) : json_null());
    if (way->budget_known) {
        json_set_number(object, "budget_limit_bytes", way->limit);
        json_set_number(object, "budget_peak_bytes", way->peak);
        json_set_number(object, "budget_waits", way->waits);
    }
    return object;
}

bool demo_report_json(const demo_report *report, FILE *to)
{
    const demo *of = report->of;
    json_t *object = json_object(), *ways = json_array();
    json_object_set_new(object, "driver", json_text(command_driver_word(report->driver)));
    json_object_set_new(object, "simulated", json_boolean(report->driver->simulated));
    json_object_set_new(object, "device", json_text(report->device->name));
    json_set_number(object, "size", of->settings.n);
    json_set_number(object, "batches", of->settings.batches);
    json_object_set_new(object, "product", json_text(of->product));
    if (*of->without_blas)
        json_object_set_new(object, "without_blas", json_text(of->without_blas));
    json_object_set_new(object, "stack", json_text(of->stack));
    json_object_set_new(object, "form", json_string(form_name(of)));
    json_set_number(object, "bytes_in", demo_bytes_each_way(of));
    json_set_number(object, "bytes_out", demo_bytes_each_way(of));
    for (size_t i = 0; i < DEMO_WAYS; i++)
        json_array_append_new(ways, way_object(of, &of->ways[i]));
    json_object_set_new(object, "ways", ways);
    json_object_set_new(object, "right", json_boolean(demo_is_right(of)));
    const bool written = json_dumpf(object, to, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0;
    json_decref(object);
    fputc('\n', to);
    return fflush(to) == 0 && !ferror(to) && written;
}
