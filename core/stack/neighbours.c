/* The process's stacks, and memory that one of them gives back for another's request.
 *
 *     own stack's other layers      outermost first, so that what one gives to the layer below goes on from there;
 *     other stacks of the device    the youngest first, each stack's layers likewise
 *
 * A pin keeps a stack from being destroyed while it is asked, so the list's lock is held for moments only. */
#include "core/stack/neighbours.h"

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/base/thread.h"
#include "core/stack/calls.h"

#include <stdio.h>
#include <string.h>

enum {
    MOST_ROUNDS = 16, /* tries for a request: other threads may take what was given back */
    MOST_VAIN = 4,    /* tries that gave nothing: other threads may have free memory in hand */
    MOST_NAMED = 3,   /* in a message */
    NAMES = 112,      /* bytes of the list of names */
};

#define PAGE ((uint64_t)2 << 20) /* of the device's memory */

static strata_lock stacks_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_STACKS);
static strata_stack *stacks; /* youngest first; guarded by stacks_lock, as all here */
static uint64_t last_serial;
static _Atomic unsigned program_stacks; /* with memory of the program's; written under the lock, read by any thread */

/* ---- the list ---- */

void strata_neighbours_join(strata_stack *stack)
{
    strata_lock_take(&stacks_lock);
    stack->serial = ++last_serial;
    stack->next_stack = stacks;
    stacks = stack;
    atomic_fetch_add_explicit(&program_stacks, stack->memory_of_program, memory_order_relaxed);
    strata_lock_release(&stacks_lock);
}

void strata_neighbours_leave(strata_stack *stack)
{
    unsigned spins = 0;
    strata_lock_take(&stacks_lock);
    strata_stack **link = &stacks;
    while (*link && *link != stack)
        link = &(*link)->next_stack;
    if (*link) {
        *link = stack->next_stack;
        atomic_fetch_sub_explicit(&program_stacks, stack->memory_of_program, memory_order_relaxed);
    }
    while (stack->pins) {
        strata_lock_release(&stacks_lock);
        strata_backoff(&spins);
        strata_lock_take(&stacks_lock);
    }
    strata_lock_release(&stacks_lock);
}

bool strata_neighbours_any_of_program(void)
{
    return atomic_load_explicit(&program_stacks, memory_order_relaxed);
}

strata_stack *strata_neighbours_pin_next(const strata_device *device, const strata_stack *own, uint64_t serial)
{
    strata_lock_take(&stacks_lock);
    strata_stack *other = stacks;
    while (other && (other->serial >= serial || other == own || (device && other->device != device)))
        other = other->next_stack;
    if (other)
        other->pins++;
    strata_lock_release(&stacks_lock);
    return other;
}

uint64_t strata_neighbours_unpin(strata_stack *other)
{
    strata_lock_take(&stacks_lock);
    const uint64_t serial = other->serial;
    other->pins--;
    strata_lock_release(&stacks_lock);
    return serial;
}

/* ---- what stacks hold ---- */

typedef struct holding {
    uint64_t held, live; /* bytes of the device's memory */
} holding;

/* What a stack has of the device's memory. Owners of other memory, and owners that cannot be queried, count as 0. */
static holding holding_of(const strata_stack *stack)
{
    strata_resource *top = stack->layers[0];
    strata_usage usage = {0};
    holding all = {0};
    uint64_t live_elsewhere = 0;
    for (size_t i = 0; i < stack->count; i++) {
        strata_resource *layer = stack->layers[i];
        if (layer->upstream)
            continue;
        usage = (strata_usage){0};
        layer->ops->usage(layer, &usage);
        if (layer->ops->capabilities(layer) & STRATA_CAPABILITY_DEVICE_MEMORY)
            all.held += usage.reserved_bytes;
        else
            live_elsewhere += usage.live_bytes;
    }
    if (stack->count > 1) /* what layers keep is live for the owner */
        top->ops->usage(top, &usage);
    all.live = usage.live_bytes > live_elsewhere ? usage.live_bytes - live_elsewhere : 0;
    all.live = all.live < all.held ? all.live : all.held;
    return all;
}

/* Bytes that the device's stacks other than `own` hold besides live blocks. Some may be in parts that cannot be given
 * back. */
static uint64_t most_given(const strata_device *device, const strata_stack *own)
{
    uint64_t bytes = 0;
    strata_stack *stack;
    for (uint64_t serial = UINT64_MAX; (stack = strata_neighbours_pin_next(device, own, serial));
         serial = strata_neighbours_unpin(stack)) {
        const holding its = holding_of(stack);
        bytes += its.held - its.live;
    }
    return bytes;
}

/* ---- giving back ---- */

/* What the device is to have free. */
typedef struct goal {
    const strata_reclaim *request;
    uint64_t bytes, before; /* free bytes wanted; free at the start, 0 if the driver does not say */
    uint64_t given;         /* as layers say */
} goal;

static uint64_t missing_for(const goal *self)
{
    const uint64_t now = strata_device_free_bytes(self->request->device);
    const uint64_t free = now || self->before ? now : self->given;
    return free < self->bytes ? self->bytes - free : 0;
}

/* Whether a layer is asked. In other stacks, a layer whose frees wait for the device, as cuMemFree does, is asked only
 * if the request may wait. In the requesting stack it always is: that stack's own calls wait, too. */
static bool may_ask(const strata_reclaim *request, strata_resource *layer)
{
    if (layer == request->owner || !layer->ops->give_back)
        return false;
    const uint32_t capabilities = layer->ops->capabilities(layer);
    return layer->stack == request->owner->stack ||
           (capabilities & STRATA_CAPABILITY_DEVICE_MEMORY &&
            (request->may_wait || capabilities & STRATA_CAPABILITY_STREAM_ORDERED));
}

static void ask(goal *self, const strata_stack *stack)
{
    const strata_reclaim *request = self->request;
    uint64_t missing = 1;
    for (size_t i = 0; i < stack->count && missing; i++)
        if (may_ask(request, stack->layers[i]) && (missing = missing_for(self)))
            self->given += stack->layers[i]->ops->give_back(stack->layers[i], missing, request->may_wait);
}

static void ask_others(goal *self)
{
    const strata_device *device = self->request->device;
    const strata_stack *own = self->request->owner->stack;
    strata_stack *other;
    for (uint64_t serial = UINT64_MAX; missing_for(self) && (other = strata_neighbours_pin_next(device, own, serial));
         serial = strata_neighbours_unpin(other))
        ask(self, other);
}

/* The first round asks for the bytes that are missing. If that was not enough, memory is in parts or other threads took
 * it: later rounds ask for all bytes. */
static goal goal_for(const strata_reclaim *self)
{
    const uint64_t bytes = (self->bytes + PAGE - 1) / PAGE * PAGE, before = strata_device_free_bytes(self->device);
    return (goal){
        .request = self, .before = before, .bytes = self->round == 0 && before < bytes ? bytes : before + bytes};
}

/* Whether memory was given back, perhaps for another thread. */
static bool has_given(const goal *self)
{
    return self->given || strata_device_free_bytes(self->request->device) > self->before;
}

/* Whether to try again although nothing was given: others have free memory, and all together enough. False without a
 * wait, where their work may just not be over. */
static bool is_worth_asking_again(strata_reclaim *self)
{
    return self->may_wait && self->vain++ < MOST_VAIN && most_given(self->device, self->owner->stack) &&
           self->bytes <= strata_device_free_bytes(self->device) + most_given(self->device, NULL);
}

/* What its own stack gives may go to the owner instead of the device, so the owner tries that before others are asked.
 */
static bool reclaim(strata_reclaim *self)
{
    const strata_stack *own = self->owner->stack;
    goal wanted = goal_for(self);
    if (self->round == 0 && self->bytes > wanted.before + most_given(self->device, NULL))
        return false;
    if (own && !self->others)
        ask(&wanted, own);
    if (wanted.given)
        return true;
    if (!self->others)
        self->round = 0;
    self->others = true;
    wanted = goal_for(self);
    ask_others(&wanted);
    return has_given(&wanted) || is_worth_asking_again(self);
}

/* False inside an internal call of the thread: a layer is giving memory back already. */
bool strata_reclaim_try(strata_reclaim *self)
{
    strata_thread *thread = strata_thread_self();
    if (!thread || thread->internal_calls || self->round == MOST_ROUNDS || self->bytes > self->device->info.total_bytes)
        return false;
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    strata_error_suppress_begin();
    thread->internal_calls++;
    const bool given = reclaim(self);
    thread->internal_calls--;
    strata_error_suppress_end(false);
    strata_error_take_back(&aside);
    self->round++;
    return given;
}

bool strata_reclaim_try_all(strata_reclaim *self)
{
    if (strata_reclaim_try(self))
        return true;
    if (self->may_wait)
        return false;
    self->may_wait = true;
    self->others = false;
    self->round = 0;
    return strata_reclaim_try(self);
}

/* ---- completing frees ---- */

void strata_neighbours_reap(const strata_device *device, const strata_stack *own)
{
    strata_stack *other;
    size_t bytes;
    strata_error_suppress_begin();
    for (uint64_t serial = UINT64_MAX; (other = strata_neighbours_pin_next(device, own, serial));
         serial = strata_neighbours_unpin(other))
        strata_reap_internally(other->layers[0], STRATA_REAP_FINISHED, &bytes);
    strata_error_suppress_end(false);
}

/* ---- after a reset ---- */

/* From the lowest layer on: a budget asks whether the memory below has gone. */
static void settle(strata_stack *stack)
{
    for (size_t i = stack->count; i-- > 0;)
        if (stack->layers[i]->ops->give_back)
            stack->layers[i]->ops->give_back(stack->layers[i], UINT64_MAX, false);
}

void strata_neighbours_settle_lost(int ordinal)
{
    strata_stack *stack;
    if (strata_driver_state_now() != STRATA_DRIVER_RESET)
        return;
    strata_error_suppress_begin();
    for (uint64_t serial = UINT64_MAX; (stack = strata_neighbours_pin_next(NULL, NULL, serial));
         serial = strata_neighbours_unpin(stack))
        if (stack->device->ordinal == ordinal && strata_device_is_lost(stack->device))
            settle(stack);
    strata_error_suppress_end(false);
}

/* ---- describing ---- */

static void add_name(char names[NAMES], const strata_stack *other, uint64_t held, unsigned before)
{
    const size_t length = strlen(names);
    if (before < MOST_NAMED)
        snprintf(names + length, NAMES - length, "%s\"%.20s\" %s", before ? ", " : "", other->text,
                 strata_size_short(held).text);
    else if (before == MOST_NAMED)
        snprintf(names + length, NAMES - length, ", others");
}

void strata_neighbours_describe(const strata_device *device, const strata_stack *own, char text[STRATA_NEIGHBOURS_TEXT])
{
    char names[NAMES] = "";
    uint64_t held = 0, live = 0;
    unsigned count = 0;
    strata_stack *other;
    strata_error_suppress_begin();
    for (uint64_t serial = UINT64_MAX; (other = strata_neighbours_pin_next(device, own, serial));
         serial = strata_neighbours_unpin(other)) {
        const holding its = holding_of(other);
        held += its.held;
        live += its.live;
        if (its.held)
            add_name(names, other, its.held, count++);
    }
    strata_error_suppress_end(false);
    *text = '\0';
    if (held)
        snprintf(text, STRATA_NEIGHBOURS_TEXT, ", of which other stacks hold %s, %s of it live: %s",
                 strata_size_text(held).text, strata_size_text(live).text, names);
}
