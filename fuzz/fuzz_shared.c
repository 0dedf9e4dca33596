/* The file of a shared budget, which other processes write. An input is a row of steps: calls of this process, and
 * bytes that another one writes into the file, resizes or removes. Nothing may crash, hang, or be read beyond its end.
 * While nothing was written by others, no grant exceeds the limit. */
#define _GNU_SOURCE
#include "fuzz/begin.h"

#include "fuzz/input.h"
#include "support/budget_inside.h"

#include <strata/budget.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LIMIT = 1 << 20, STEPS = 200 };

static char folder[] = "/tmp/strata-fuzz-XXXXXX";
static char path[SHARED_PATH];
static const unsigned char device[16] = {1};
static const shared_terms terms = {"fuzz", NULL, device, LIMIT};

/* Up to four bytes of the input, below `limit`. */
static uint64_t number(fuzz_input *input, uint64_t limit)
{
    uint64_t all = 0;
    for (uint64_t most = 1; most < limit && most < UINT64_C(1) << 32; most <<= 8)
        all = all << 8 | fuzz_byte(input);
    return limit ? all % limit : 0;
}

typedef struct run {
    budget_shared *shared; /* NULL: refused */
    uint64_t held, limit;
    uint64_t passed_on; /* charged without a block */
    uint64_t tickets[8], bytes[8];
    bool touched; /* by others */
} run;

static void visit(const strata_shared_budget *budget, void *data)
{
    (void)data;
    if (budget->problem) {
        assert_true(strlen(budget->problem) > 0);
        return;
    }
    assert_true(strlen(budget->name) < 64);
    for (size_t i = 0; i < budget->process_count; i++)
        for (size_t at = 0; at < budget->processes[i].tag_count; at++)
            assert_true(strlen(budget->processes[i].tags[at].name) < SHARED_TAG_NAME);
}

static void take(run *self, uint64_t bytes)
{
    if (!shared_take(self->shared, bytes) &&
        !(shared_make_room(self->shared, bytes, 0) && shared_take(self->shared, bytes)))
        return;
    self->held += bytes;
    if (!self->touched && self->limit)
        assert_true(shared_in_use(self->shared) <= self->limit);
}

/* Within the thread's quota, which some of the operations ask for. */
static void take_by_quota(run *self, uint64_t bytes, bool asks)
{
    shared_quota *quota = shared_quota_self(self->shared);
    if (asks && quota)
        shared_quota_open(self->shared, quota, bytes, LIMIT);
    if (!shared_quota_take(quota, bytes))
        return;
    self->passed_on += bytes;
    if (!self->touched && self->limit)
        assert_true(shared_in_use(self->shared) <= self->limit);
}

static void give(run *self, uint64_t bytes)
{
    bytes = bytes < self->held ? bytes : self->held;
    shared_give(self->shared, bytes);
    self->held -= bytes;
}

static void give_passed_on(run *self, uint64_t bytes)
{
    bytes = bytes < self->passed_on ? bytes : self->passed_on;
    if (!shared_quota_give(shared_quota_self(self->shared), bytes))
        shared_give(self->shared, bytes);
    self->passed_on -= bytes;
}

/* Frees bytes; the stream is done with them at once, or never. */
static void retire(run *self, size_t at, uint64_t bytes, bool done)
{
    bytes = bytes < self->held ? bytes : self->held;
    if (!bytes || self->bytes[at])
        return;
    _Atomic uint64_t ticket = SHARED_WAITING;
    const shared_free freed = {.stream = at % 3 + 1, .bytes = bytes, .ticket = &ticket, .waiting = SHARED_WAITING};
    uint64_t pending = shared_retire(self->shared, &freed);
    if (pending && done)
        atomic_store(&self->shared->file->retired[shared_slot_of(self->shared) - self->shared->file->slots]
                          .records[pending % SHARED_RETIRED]
                          .word,
                     pending);
    self->held -= bytes;
    self->bytes[at] = bytes;
    self->tickets[at] = ticket;
}

static void complete(run *self, size_t at)
{
    if (!self->bytes[at])
        return;
    shared_retire_completed(self->shared, self->tickets[at]);
    shared_give(self->shared, self->bytes[at]);
    self->bytes[at] = 0;
}

/* What another process may do to the file. */
static void write_by_another(run *self, fuzz_input *input)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    self->touched = true;
    if (file < 0)
        return;
    uint64_t value = number(input, UINT64_C(1) << 32) << 32 | number(input, UINT64_C(1) << 32),
             slot = fuzz_below(input, 6);
    size_t offset;
    switch (fuzz_below(input, 7)) {
    case 0:
        offset = number(input, offsetof(shared_file, slots));
        break;
    case 1:
        offset = offsetof(shared_file, slots) + (slot < 5 ? slot : SHARED_SLOTS - 1) * sizeof(shared_slot) +
                 number(input, 64);
        break;
    case 2:
        offset = offsetof(shared_file, slots) + slot * sizeof(shared_slot) + number(input, sizeof(shared_slot));
        break;
    case 3:
        offset = offsetof(shared_file, retired) + slot * sizeof(shared_retired_page) + number(input, 4096);
        break;
    case 4:
        offset = offsetof(shared_file, quotas) + slot * sizeof(shared_quota_page) + number(input, 128);
        break;
    case 5:
        assert_int_equal(ftruncate(file, (off_t)(value % (2 * sizeof(shared_file)))), 0);
        close(file);
        return;
    default:
        unlink(path);
        close(file);
        return;
    }
    size_t count = 1 + fuzz_below(input, 8);
    assert_true(pwrite(file, &value, count, (off_t)offset) == (ssize_t)count);
    close(file);
}

static void step(run *self, fuzz_input *input)
{
    unsigned kind = fuzz_below(input, 15);
    if (kind == 0) {
        write_by_another(self, input);
        return;
    }
    if (kind == 1) {
        check_ok(strata_shared_budget_visit(visit, NULL));
        return;
    }
    if (kind == 2) {
        strata_shared_budget_set_limit(path, number(input, 2 * LIMIT));
        self->limit = 0; /* not followed here */
        return;
    }
    if (!self->shared)
        return;
    uint64_t bytes = fuzz_below(input, 4) ? number(input, LIMIT / 4) : number(input, UINT64_C(1) << 32);
    if (kind < 6)
        take(self, bytes);
    else if (kind < 8)
        give(self, bytes);
    else if (kind == 12)
        give_passed_on(self, bytes);
    else if (kind > 12)
        take_by_quota(self, bytes, fuzz_below(input, 2));
    else if (kind < 10)
        retire(self, fuzz_below(input, 8), bytes, fuzz_below(input, 2));
    else
        complete(self, fuzz_below(input, 8));
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    assert_true(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0);
    assert_true(mkdtemp(folder) && setenv("STRATA_SHARED_DIR", folder, 1) == 0);
    assert_int_equal(shared_file_path(&terms, false, 0, path), STRATA_SUCCESS);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input input = {.at = data, .end = data + size};
    run self = {.limit = LIMIT};
    unlink(path);
    check_ok(shared_open(&terms, &self.shared));
    for (int i = 0; i < STEPS && input.at < input.end; i++)
        step(&self, &input);
    budget_shared *again;
    if (shared_open(&terms, &again) == STRATA_SUCCESS)
        shared_close(again);
    shared_close(self.shared);
    unlink(path);
    return 0;
}
