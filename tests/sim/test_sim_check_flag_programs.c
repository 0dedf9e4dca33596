/* Random programs about values. The checker finds a bug in one of them, in whichever order its work runs, if and only
 * if there is an order, of all that are possible, in which two uses of the same bytes come in no order. An exhaustive
 * search tells. All waits are satisfied in the end, since each flag only grows. */
#include "planted/flags.h"

enum { PROGRAMS = 400, STEPS = 9 };
enum flag_word { COUNTER, KERNEL, SHARED, HALVES }; /* of 64 bits, 16 bytes apart */

/* ---- the search ---- */

enum step_kind { READ, WRITE, SET, AWAIT };

enum { MOST_STEPS = 32, BASE = -1, WORDS = 4 };

struct step {
    enum step_kind kind;
    unsigned half;   /* of the data */
    unsigned word;   /* of the flags */
    unsigned mask;   /* its bytes */
    uint64_t value;  /* at the mask's place */
    uint32_t before; /* steps that come before by streams, events and the host, as bits */
};

/* The program, and the order that the search is in. */
static struct {
    struct step steps[MOST_STEPS];
    unsigned count;
    uint32_t of_stream[4]; /* what comes before the next step of a stream */
    uint32_t of_host;
    uint64_t words[WORDS];
    int writers[WORDS][8]; /* by byte */
    uint32_t after[MOST_STEPS];
    bool racy;
} model;

static void add_step(unsigned stream, struct step step)
{
    assert_true(model.count < MOST_STEPS);
    step.before = model.of_stream[stream] | model.of_host;
    model.steps[model.count] = step;
    model.of_stream[stream] |= UINT32_C(1) << model.count++;
}

static uint64_t bits_of(unsigned mask)
{
    return mask == 0xff ? UINT64_MAX : mask == 0xf0 ? UINT64_MAX << 32 : UINT32_MAX;
}

static bool is_satisfied(const struct step *step)
{
    uint64_t found = model.words[step->word];
    if (step->mask == 0xff)
        return (int64_t)(found - step->value) >= 0;
    unsigned shift = step->mask == 0xf0 ? 32 : 0;
    return (int32_t)((uint32_t)(found >> shift) - (uint32_t)(step->value >> shift)) >= 0;
}

static void compare_steps(void)
{
    for (unsigned i = 0; i < model.count; i++) {
        for (unsigned j = i + 1; j < model.count; j++) {
            const struct step *one = &model.steps[i];
            const struct step *other = &model.steps[j];
            bool data = one->kind <= WRITE && other->kind <= WRITE && one->half == other->half;
            bool race = data && (one->kind == WRITE || other->kind == WRITE);
            if (race && (model.after[i] >> j & 1) == 0 && (model.after[j] >> i & 1) == 0)
                model.racy = true;
        }
    }
}

static void search(uint32_t done);

/* The step comes next, and after what wrote the bytes that it finds. */
static void take_step(unsigned index, uint32_t done)
{
    const struct step *step = &model.steps[index];
    uint64_t word = model.words[step->word];
    int writers[8];
    memcpy(writers, model.writers[step->word], sizeof writers);
    uint32_t after = 0;
    for (unsigned i = 0; i < model.count; i++)
        if ((step->before >> i & 1) != 0)
            after |= model.after[i] | UINT32_C(1) << i;
    for (unsigned byte = 0; byte < 8; byte++) {
        if ((step->mask >> byte & 1) == 0)
            continue;
        if (step->kind == SET)
            model.writers[step->word][byte] = (int)index;
        else if (step->kind == AWAIT && writers[byte] != BASE)
            after |= model.after[writers[byte]] | UINT32_C(1) << writers[byte];
    }
    if (step->kind == SET)
        model.words[step->word] = (word & ~bits_of(step->mask)) | step->value;
    model.after[index] = after;
    search(done | UINT32_C(1) << index);
    model.words[step->word] = word;
    memcpy(model.writers[step->word], writers, sizeof writers);
}

static void search(uint32_t done)
{
    if (model.racy)
        return;
    if (done == (UINT32_C(1) << model.count) - 1)
        compare_steps();
    for (unsigned i = 0; i < model.count; i++) {
        const struct step *step = &model.steps[i];
        bool ready = (done >> i & 1) == 0 && (step->before & ~done) == 0;
        if (ready && (step->kind != AWAIT || is_satisfied(step)))
            take_step(i, done);
    }
}

static bool some_order_has_a_race(void)
{
    memset(model.words, 0, sizeof model.words);
    for (unsigned word = 0; word < WORDS; word++)
        for (unsigned byte = 0; byte < 8; byte++)
            model.writers[word][byte] = BASE;
    model.racy = false;
    search(0);
    return model.racy;
}

/* ---- programs ---- */

struct growth {
    uint32_t counter;
    uint32_t kernel;
    uint32_t shared;
    uint32_t lower;
    uint32_t upper;
};

static uint64_t drawn;

static uint32_t draw(uint32_t below)
{
    drawn = drawn * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(drawn >> 33) % below;
}

/* Sets a flag or waits for it, in the program and in the model. */
static void set_flag(const struct world *world, unsigned stream, unsigned word, unsigned mask, uint32_t value)
{
    const CUstream streams[] = {world->a, world->b, world->c, world->d};
    unsigned shift = mask == 0xf0 ? 32 : 0;
    CUdeviceptr flag = flag_of(world) + 16 * word + shift / 8;
    add_step(stream, (struct step){.kind = SET, .word = word, .mask = mask, .value = (uint64_t)value << shift});
    if (word == KERNEL)
        put(streams[stream], flag, value);
    else
        tell_at(streams[stream], flag, value);
}

static void await_flag(const struct world *world, unsigned stream, unsigned word, unsigned mask, uint64_t value)
{
    const CUstream streams[] = {world->a, world->b, world->c, world->d};
    CUdeviceptr flag = flag_of(world) + 16 * word;
    add_step(stream, (struct step){.kind = AWAIT, .word = word, .mask = mask, .value = value});
    if (mask == 0xff)
        OK(p_cuStreamWaitValue64(streams[stream], flag, value, CU_STREAM_WAIT_VALUE_GEQ));
    else if (mask == 0xf0)
        await_at(streams[stream], flag + 4, (uint32_t)(value >> 32));
    else
        await_at(streams[stream], flag, (uint32_t)value);
}

static void use_data(const struct world *world, unsigned stream)
{
    const CUstream streams[] = {world->a, world->b, world->c, world->d};
    unsigned half = draw(2);
    unsigned how = draw(3);
    CUdeviceptr data = world->x + half * (BYTES / 2);
    add_step(stream, (struct step){.kind = how == 0 ? READ : WRITE, .half = half});
    if (how == 2)
        OK(p_cuMemsetD8Async(data, 1, BYTES / 2, streams[stream]));
    else
        kernel(world, streams[stream], data, BYTES / 2, how == 0 ? READS : WRITES);
}

static void raise_some(const struct world *world, unsigned stream, struct growth *growth)
{
    switch (draw(5)) {
    case 0:
        set_flag(world, 0, COUNTER, 0x0f, ++growth->counter);
        break;
    case 1:
        set_flag(world, 1, KERNEL, 0x0f, ++growth->kernel);
        break;
    case 2:
        growth->shared = 1;
        set_flag(world, stream, SHARED, 0x0f, 1);
        break;
    case 3:
        set_flag(world, 2, HALVES, 0x0f, ++growth->lower);
        break;
    default:
        set_flag(world, 3, HALVES, 0xf0, ++growth->upper);
        break;
    }
}

static void await_some(const struct world *world, unsigned stream, const struct growth *growth)
{
    uint64_t upper = (uint64_t)draw(growth->upper + 1) << 32;
    switch (draw(5)) {
    case 0:
        await_flag(world, stream, COUNTER, 0x0f, draw(growth->counter + 1));
        break;
    case 1:
        await_flag(world, stream, KERNEL, 0x0f, draw(growth->kernel + 1));
        break;
    case 2:
        await_flag(world, stream, SHARED, 0x0f, growth->shared);
        break;
    case 3:
        await_flag(world, stream, HALVES, 0xf0, upper);
        break;
    default:
        await_flag(world, stream, HALVES, 0xff, upper | draw(growth->lower + 1));
        break;
    }
}

static void order_some(const struct world *world, unsigned stream, unsigned other)
{
    const CUstream streams[] = {world->a, world->b, world->c, world->d};
    if (draw(6) == 0) {
        model.of_host |= model.of_stream[stream];
        OK(p_cuStreamSynchronize(streams[stream]));
    } else {
        model.of_stream[other] |= model.of_stream[stream];
        hand_over(world->event, streams[stream], streams[other]);
    }
}

/* What kernels write before a first wait for it is not known. */
static void run_steps(const struct world *world)
{
    struct growth growth = {0};
    memset(&model, 0, sizeof model);
    await_at(world->d, flag_of(world) + 16 * KERNEL, 0);
    OK(p_cuStreamSynchronize(world->d));
    for (int step = 0; step < STEPS; step++) {
        unsigned stream = draw(4);
        uint32_t what = draw(12);
        if (what < 4)
            use_data(world, stream);
        else if (what < 8)
            raise_some(world, stream, &growth);
        else if (what < 11)
            await_some(world, stream, &growth);
        else
            order_some(world, stream, draw(4));
    }
}

static bool has_reports(uint64_t program, strata_sim_policy policy, uint64_t seed)
{
    CUmodule module;
    uint64_t count;
    OK(p_set_policy(policy));
    OK(p_set_seed(seed));
    OK(p_clear_reports());
    struct world world = world_begin(STRATA_SIM_CHECK_NO_STACKS);
    OK(p_cuModuleLoadData(&module, flags_ptx));
    OK(p_cuModuleGetFunction(&put_function, module, "put"));
    memset(world.pinned, 0, BYTES);
    drawn = program;
    run_steps(&world);
    OK(p_cuCtxSynchronize());
    OK(p_get_report_count(&count));
    OK(p_cuModuleUnload(module));
    world_end(&world);
    return count > 0;
}

static void check_program(uint64_t program)
{
    bool early = has_reports(program, STRATA_SIM_EARLY, 0);
    if (some_order_has_a_race() != early)
        fail_msg("program %d: %s", (int)program, early ? "a false report" : "no report");
    if (has_reports(program, STRATA_SIM_LATE, 0) != early)
        fail_msg("program %d: late differs from early", (int)program);
    for (uint64_t seed = 0; seed < RANDOM_SEEDS; seed++)
        if (has_reports(program, STRATA_SIM_RANDOM, seed) != early)
            fail_msg("program %d: random, seed %d, differs from early", (int)program, (int)seed);
}

static void a_bug_is_found_in_every_order_of_the_work_if_there_is_one_in_some(void **state)
{
    unsigned racy = 0;
    (void)state;
    for (uint64_t program = 0; program < PROGRAMS; program++) {
        check_program(program);
        racy += some_order_has_a_race();
    }
    assert_in_range(racy, PROGRAMS / 10, PROGRAMS - PROGRAMS / 10); /* there are programs of both kinds */
}

int main(void)
{
    if (!open_pairs())
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bug_is_found_in_every_order_of_the_work_if_there_is_one_in_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
