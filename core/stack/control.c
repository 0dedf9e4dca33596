/* Named values: finds the layer and value of a name, reports all values. Values of the process, and of the whole stack,
 * have groups, named like layers and searched after them. */
#include <strata/control.h>

#include "core/base/driver_state.h"
#include "core/base/emitter.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/object_counts.h"
#include "core/base/size_text.h"
#include "core/stack/calls.h"
#include "core/stack/layers.h"
#include "core/stack/stack.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NAME_SIZE = 160, LIST_SIZE = 320 };

/* ---- values of no layer ---- */

typedef struct value_group {
    const char *name;
    const strata_value *values;
    size_t value_count;
    /* Reads a value; `index` stands in brackets behind the group's name, or is 0. NULL: the values count objects. */
    strata_status (*get_value)(strata_stack *stack, size_t index, size_t which, uint64_t *value);
    strata_object_kind objects; /* what they count; a writable count can be set to 0 */
    bool indexed;
} value_group;

enum { HOST_BYTES, HOST_RESIDENT, HOST_VALUES };

static const strata_value host_values[HOST_VALUES] = {
    [HOST_BYTES] = {"bytes", STRATA_VALUE_BYTES, false, "host memory of the library's own data"},
    [HOST_RESIDENT] = {"resident", STRATA_VALUE_BYTES, false, "physical memory of its arena"},
};

static strata_status get_host_value(strata_stack *stack, size_t index, size_t which, uint64_t *value)
{
    (void)stack;
    (void)index;
    if (which == HOST_BYTES)
        *value = strata_host_bytes();
    else if (!strata_host_resident(value))
        return strata_fail(
            STRATA_ERROR_UNSUPPORTED,
            "host.resident: not known, as the library's data is in the C library's heap with the program's (%s)",
            strata_host_allocator_reason());
    return STRATA_SUCCESS;
}

enum { PENDING_STREAMS, PENDING_FREES, PENDING_BYTES, PENDING_VALUES };

static const strata_value pending_values[PENDING_VALUES] = {
    [PENDING_STREAMS] = {"streams", STRATA_VALUE_COUNT, false, "streams that freed memory of the stack waits for"},
    [PENDING_FREES] = {"frees", STRATA_VALUE_COUNT, false, "frees that wait for streams, at each"},
    [PENDING_BYTES] = {"bytes", STRATA_VALUE_BYTES, false, "their bytes"},
};

typedef struct pending_sum {
    size_t stream_id; /* 0: all */
    uint64_t values[PENDING_VALUES];
} pending_sum;

static void add_frees(const strata_stream_frees *frees, void *data)
{
    pending_sum *sum = data;
    if (sum->stream_id && sum->stream_id != frees->stream_id)
        return;
    sum->values[PENDING_STREAMS]++;
    sum->values[PENDING_FREES] += frees->frees;
    sum->values[PENDING_BYTES] += frees->bytes;
}

static strata_status get_pending_value(strata_stack *stack, size_t index, size_t which, uint64_t *value)
{
    pending_sum sum = {.stream_id = index};
    const strata_status status = strata_stack_visit_frees(stack, add_frees, &sum);
    *value = sum.values[which];
    return status;
}

/* Indexed by strata_object_count; launches of graphs and conditional nodes stand behind. */
static const strata_value capture_values[] = {
    {"made", STRATA_VALUE_COUNT, true, "captures begun; 0 sets it back"},
    {"live", STRATA_VALUE_COUNT, false, "captures under way"},
    {"ended", STRATA_VALUE_COUNT, true, "captures ended or discarded; 0 sets it back"},
};
static const strata_value graph_values[] = {
    {"made", STRATA_VALUE_COUNT, true, "graphs made of captures; 0 sets it back"},
    {"live", STRATA_VALUE_COUNT, false, "graphs not yet destroyed"},
    {"ended", STRATA_VALUE_COUNT, true, "graphs destroyed; 0 sets it back"},
    {"launches", STRATA_VALUE_COUNT, true, "launches of graphs; 0 sets it back"},
};
static const strata_value conditional_values[] = {
    {"made", STRATA_VALUE_COUNT, true, "conditional nodes made in captures; 0 sets it back"},
    {"live", STRATA_VALUE_COUNT, false, "of these, in captures under way and in graphs"},
    {"ended", STRATA_VALUE_COUNT, true, "of these, gone with their capture or graph; 0 sets it back"},
    {"launches", STRATA_VALUE_COUNT, true, "conditional nodes launched with their graphs; 0 sets it back"},
};
static const strata_value event_values[] = {
    {"made", STRATA_VALUE_COUNT, true, "events of the driver made for uses and fences; 0 sets it back"},
    {"live", STRATA_VALUE_COUNT, false, "of these, kept for the next use"},
    {"ended", STRATA_VALUE_COUNT, true, "of these, destroyed; 0 sets it back"},
};

#define COUNT_OF(values) (sizeof(values) / sizeof(values)[0])

static const value_group value_groups[] = {
    {"host", host_values, HOST_VALUES, get_host_value, STRATA_OBJECT_KINDS, false},
    {"captures", capture_values, COUNT_OF(capture_values), NULL, STRATA_OBJECT_CAPTURE, false},
    {"graphs", graph_values, COUNT_OF(graph_values), NULL, STRATA_OBJECT_GRAPH, false},
    {"conditionals", conditional_values, COUNT_OF(conditional_values), NULL, STRATA_OBJECT_CONDITIONAL, false},
    {"events", event_values, COUNT_OF(event_values), NULL, STRATA_OBJECT_EVENT, false},
    {"pending", pending_values, PENDING_VALUES, get_pending_value, STRATA_OBJECT_KINDS, true},
};

/* The kind of objects, and the count, that a value of such a group stands for. */
static strata_object_kind kind_of(const value_group *group, size_t which, strata_object_count *count)
{
    const bool launches = which > STRATA_OBJECTS_ENDED;
    *count = launches ? STRATA_OBJECTS_MADE : (strata_object_count)which;
    if (!launches)
        return group->objects;
    return group->objects == STRATA_OBJECT_GRAPH ? STRATA_OBJECT_LAUNCH : STRATA_OBJECT_CONDITIONAL_LAUNCH;
}

static strata_status get_of_group(const value_group *group, strata_stack *stack, size_t index, size_t which,
                                  uint64_t *value)
{
    strata_object_count count;
    if (group->get_value)
        return group->get_value(stack, index, which, value);
    const strata_object_kind kind = kind_of(group, which, &count);
    *value = strata_object_count_read(kind, count);
    return STRATA_SUCCESS;
}

static strata_status reset_of_group(const value_group *group, size_t which, uint64_t value)
{
    strata_object_count count;
    if (value)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s.%s can only be set to 0", group->name,
                           group->values[which].name);
    const strata_object_kind kind = kind_of(group, which, &count);
    strata_object_count_reset(kind, count);
    return STRATA_SUCCESS;
}

enum { VALUE_GROUPS = sizeof value_groups / sizeof value_groups[0] };

/* ---- bindings ---- */

/* What a name means. */
typedef struct value_binding {
    strata_resource *layer;
    const value_group *value_group; /* NULL: a layer's value */
    strata_stack *stack;            /* with `index`: of a group's value */
    size_t index;
    size_t which;
} value_binding;

static const char *name_of(const value_binding *binding)
{
    return binding->value_group ? binding->value_group->name : binding->layer->ops->name;
}

static size_t count_of(const value_binding *binding)
{
    return binding->value_group ? binding->value_group->value_count : binding->layer->ops->value_count;
}

static const strata_value *value_at(const value_binding *binding)
{
    return binding->value_group ? &binding->value_group->values[binding->which]
                                : &binding->layer->ops->values[binding->which];
}

/* ---- names ---- */

/* The layer's position among layers of its name, outermost first. */
static size_t index_of(const strata_stack *stack, const strata_resource *layer)
{
    size_t index = 0;
    for (size_t i = 0; i < layer->position; i++)
        index += strcmp(stack->layers[i]->ops->name, layer->ops->name) == 0;
    return index;
}

static strata_resource *find_layer(const strata_stack *stack, const char *name, size_t length, size_t index)
{
    for (size_t i = 0; i < stack->count; i++) {
        const char *has = stack->layers[i]->ops->name;
        if (strlen(has) == length && strncmp(has, name, length) == 0 && index-- == 0)
            return stack->layers[i];
    }
    return NULL;
}

/* Reads "[3]" at *text and moves past it; 0 if there is none. False if it is malformed. */
static bool read_index(const char **text, size_t *index)
{
    *index = 0;
    if (**text != '[')
        return true;
    const char *digit = *text + 1;
    for (; isdigit((unsigned char)*digit) && *index <= UINT32_MAX; digit++)
        *index = *index * 10 + (size_t)(*digit - '0');
    if (digit == *text + 1 || *digit != ']' || *index > UINT32_MAX)
        return false;
    *text = digit + 1;
    return true;
}

static const value_group *find_value_group(const char *name, size_t length)
{
    for (size_t i = 0; i < VALUE_GROUPS; i++)
        if (strlen(value_groups[i].name) == length && strncmp(value_groups[i].name, name, length) == 0)
            return &value_groups[i];
    return NULL;
}

static strata_status refuse_layer(const strata_stack *stack, const char *name)
{
    char layers[LIST_SIZE] = "";
    for (size_t i = 0; i < stack->count; i++)
        strata_append_name(layers, sizeof layers, stack->layers[i]->ops->name);
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "unknown value \"%.100s\": expected LAYER.VALUE with a layer of %s, such as \"budget.limit\", "
                       "or \"budget[1].limit\" for the second one, or a value of the process such as \"host.bytes\"",
                       name, layers);
}

/* Whether a value is listed. An old name has no help: it can be used, but is not listed. */
static bool is_listed(const value_binding *binding)
{
    return value_at(binding)->help != NULL;
}

static strata_status refuse_value(const value_binding *binding, const char *name)
{
    value_binding one = *binding;
    char values[LIST_SIZE] = "";
    for (one.which = 0; one.which < count_of(binding); one.which++)
        if (is_listed(&one))
            strata_append_name(values, sizeof values, value_at(&one)->name);
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: unknown value \"%.100s\"; expected %s", name_of(binding), name,
                       *values ? values : "none, as it has no values");
}

static strata_status find_value(strata_stack *stack, const char *name, value_binding *binding)
{
    size_t index;
    size_t length = strcspn(name, ".[");
    const char *rest = name + length;
    if (!read_index(&rest, &index) || *rest != '.')
        return refuse_layer(stack, name);
    rest++;
    *binding = (value_binding){.layer = find_layer(stack, name, length, index)};
    const value_group *group = binding->layer ? NULL : find_value_group(name, length);
    if (group && (index == 0 || group->indexed))
        *binding = (value_binding){.value_group = group, .stack = stack, .index = index};
    if (!binding->layer && !binding->value_group)
        return refuse_layer(stack, name);
    for (; binding->which < count_of(binding); binding->which++)
        if (strcmp(value_at(binding)->name, rest) == 0)
            return STRATA_SUCCESS;
    return refuse_value(binding, rest);
}

static strata_status check_call(const strata_stack *stack, const char *name)
{
    if (!stack || !name)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "value of a stack: stack or name is NULL");
    return strata_check_not_forked();
}

/* ---- one value ---- */

static strata_status get(const value_binding *binding, uint64_t *value)
{
    *value = 0;
    strata_status status =
        binding->value_group ? get_of_group(binding->value_group, binding->stack, binding->index, binding->which, value)
                             : binding->layer->ops->get_value(binding->layer, binding->which, value);
    if (status != STRATA_SUCCESS)
        *value = 0;
    return status;
}

static strata_status set_value(const value_binding *binding, const char *name, uint64_t value)
{
    if (!value_at(binding)->writable)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%.100s is read-only", name);
    if (value_at(binding)->type == STRATA_VALUE_SWITCH && value > 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%.100s: expected 0 or 1, not %" PRIu64, name, value);
    return binding->value_group ? reset_of_group(binding->value_group, binding->which, value)
                                : binding->layer->ops->set_value(binding->layer, binding->which, value);
}

strata_status strata_control(strata_stack *stack, const char *name, uint64_t *value, const uint64_t *set)
{
    value_binding binding;
    uint64_t unread;
    if (value)
        *value = 0;
    strata_status status = check_call(stack, name);
    if (status == STRATA_SUCCESS)
        status = find_value(stack, name, &binding);
    if (status == STRATA_SUCCESS && (value || !set))
        status = get(&binding, value ? value : &unread);
    if (status == STRATA_SUCCESS && set)
        status = set_value(&binding, name, *set);
    return status;
}

static bool read_bytes(const strata_stack *stack, const char *text, uint64_t *value)
{
    strata_amount amount = {0};
    if (!strata_read_percent(text, strlen(text), &amount.percent))
        return strata_read_size(text, strlen(text), value);
    *value = strata_amount_bytes(&amount, stack->device->info.total_bytes);
    return true;
}

static bool read_value(const strata_stack *stack, strata_value_type type, const char *text, uint64_t *value)
{
    bool on;
    switch (type) {
    case STRATA_VALUE_BYTES:
        return read_bytes(stack, text, value);
    case STRATA_VALUE_DURATION:
        return strata_read_duration(text, strlen(text), value);
    case STRATA_VALUE_SWITCH:
        if (!strata_read_switch(text, strlen(text), &on))
            return false;
        *value = on;
        return true;
    case STRATA_VALUE_COUNT:
        break;
    }
    return strata_read_count(text, strlen(text), value);
}

strata_status strata_control_set_text(strata_stack *stack, const char *name, const char *text)
{
    static const char *const expected[] = {"a whole number",
                                           "a size such as 8GiB or 4096, or a share of the device's memory such as 50%",
                                           "a duration such as 20ms, 5us or 1s", "on or off"};
    value_binding binding;
    uint64_t value;
    strata_status status = check_call(stack, name);
    if (status == STRATA_SUCCESS && !text)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "%.100s: text is NULL", name);
    if (status == STRATA_SUCCESS)
        status = find_value(stack, name, &binding);
    if (status != STRATA_SUCCESS)
        return status;
    strata_value_type type = value_at(&binding)->type;
    if (!read_value(stack, type, text, &value))
        return strata_fail(STRATA_ERROR_SYNTAX, "%.100s: invalid value \"%.60s\"; expected %s", name, text,
                           expected[type]);
    return set_value(&binding, name, value);
}

/* ---- all values ---- */

static void full_name(const strata_stack *stack, const value_binding *binding, char name[NAME_SIZE])
{
    size_t index = index_of(stack, binding->layer);
    if (index)
        snprintf(name, NAME_SIZE, "%s[%zu].%s", binding->layer->ops->name, index, value_at(binding)->name);
    else
        snprintf(name, NAME_SIZE, "%s.%s", binding->layer->ops->name, value_at(binding)->name);
}

/* Reads a value; false, without an error, if that fails. */
static bool get_quietly(const value_binding *binding, uint64_t *value)
{
    strata_error_suppress_begin();
    bool read = get(binding, value) == STRATA_SUCCESS;
    strata_error_suppress_end(false);
    return read;
}

void strata_control_visit(strata_stack *stack,
                          void (*visit)(const char *name, const strata_value *what, uint64_t value, void *data),
                          void *data)
{
    char name[NAME_SIZE];
    uint64_t value;
    if (!stack || !visit || strata_check_not_forked() != STRATA_SUCCESS)
        return;
    for (size_t i = 0; i < stack->count; i++) {
        value_binding binding = {.layer = stack->layers[i]};
        for (; binding.which < count_of(&binding); binding.which++) {
            if (!is_listed(&binding) || !get_quietly(&binding, &value))
                continue;
            full_name(stack, &binding, name);
            visit(name, value_at(&binding), value, data);
        }
    }
}

static void print_value(strata_emitter *to, const strata_value *what, uint64_t value)
{
    switch (what->type) {
    case STRATA_VALUE_BYTES:
        strata_emit_bytes(to, what->name, value);
        return;
    case STRATA_VALUE_SWITCH:
        strata_emit_bool(to, what->name, value != 0);
        return;
    case STRATA_VALUE_COUNT:
    case STRATA_VALUE_DURATION:
        strata_emit_count(to, what->name, value);
        return;
    }
}

static void print_values(strata_emitter *to, value_binding binding)
{
    uint64_t value;
    for (; binding.which < count_of(&binding); binding.which++)
        if (is_listed(&binding) && get_quietly(&binding, &value))
            print_value(to, value_at(&binding), value);
}

static void print_layer(strata_emitter *to, strata_resource *layer)
{
    strata_emit_object_begin(to, to->format == STRATA_FORMAT_TEXT ? layer->ops->name : NULL);
    if (to->format == STRATA_FORMAT_JSON)
        strata_emit_text(to, "layer", layer->ops->name);
    print_values(to, (value_binding){.layer = layer});
    if (layer->ops->describe) {
        const unsigned before = strata_emitter_enclose(to);
        layer->ops->describe(layer, to);
        strata_emitter_release(to, before);
    }
    strata_emit_object_end(to);
}

static void print_usage(strata_emitter *to, const strata_usage *usage)
{
    strata_emit_object_begin(to, "memory");
    strata_emit_bytes(to, "live_bytes", usage->live_bytes);
    strata_emit_count(to, "live_blocks", usage->live_blocks);
    strata_emit_bytes(to, "retired_bytes", usage->retired_bytes);
    strata_emit_bytes(to, "reserved_bytes", usage->reserved_bytes);
    strata_emit_bytes(to, "reserved_peak", usage->reserved_peak);
    strata_emit_bytes(to, "reserved_free", usage->reserved_free);
    if (usage->limit)
        strata_emit_bytes(to, "limit", usage->limit);
    strata_emit_object_end(to);
}

static void print_frees(const strata_stream_frees *frees, void *data)
{
    strata_emitter *to = data;
    char stream[24] = "unknown";
    if (frees->known)
        snprintf(stream, sizeof stream, "0x%llx", (unsigned long long)(uintptr_t)frees->stream);
    strata_emit_object_begin(to, to->format == STRATA_FORMAT_TEXT ? "stream" : NULL);
    strata_emit_text(to, "handle", stream);
    strata_emit_count(to, "stream_id", frees->stream_id);
    strata_emit_count(to, "frees", frees->frees);
    strata_emit_bytes(to, "bytes", frees->bytes);
    strata_emit_object_end(to);
}

strata_status strata_stats_print(strata_stack *stack, strata_format format, strata_write_callback write, void *data)
{
    if (!stack || !write || (unsigned)format > STRATA_FORMAT_JSON)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_stats_print: stack or write is NULL, or the format is unknown");
    strata_status status = strata_check_stack(stack);
    if (status != STRATA_SUCCESS)
        return status;
    strata_resource *top = stack->layers[0];
    strata_usage usage = {0};
    strata_error_suppress_begin();
    top->ops->usage(top, &usage); /* values that need the driver stay zero if it cannot be called */
    strata_error_suppress_end(false);
    strata_emitter to;
    strata_emitter_begin(&to, format, write, data);
    strata_emit_text(&to, "stack", stack->text);
    strata_emit_count(&to, "device", (uint64_t)stack->device->ordinal);
    print_usage(&to, &usage);
    strata_emit_list_begin(&to, "pending_frees");
    strata_error_suppress_begin(); /* without host memory the list is empty */
    strata_stack_visit_frees(stack, print_frees, &to);
    strata_error_suppress_end(false);
    strata_emit_list_end(&to);
    for (size_t i = 0; i < VALUE_GROUPS; i++) {
        strata_emit_object_begin(&to, value_groups[i].name);
        print_values(&to, (value_binding){.value_group = &value_groups[i], .stack = stack});
        strata_emit_object_end(&to);
    }
    strata_emit_list_begin(&to, "layers");
    for (size_t i = 0; i < stack->count; i++)
        print_layer(&to, stack->layers[i]);
    strata_emit_list_end(&to);
    strata_emitter_end(&to);
    return STRATA_SUCCESS;
}
