/* Programs of calls. The input is a program: the policy, a stack, then operations, each with the player that makes it.
 * Players are threads. Every answer and every block's contents are compared with a plain model (fuzz/model.h); the
 * simulated driver's checker judges the order of all work (fuzz/judge.h). At the end the library and the driver must
 * hold nothing. */
#include "fuzz/captures.h"
#include "fuzz/graphs.h"
#include "fuzz/judge.h"
#include "fuzz/model.h"
#include "fuzz/operations.h"
#include "fuzz/players.h"

#include <string.h>

enum { MOST_OPERATIONS = 400, VALUES = 64, STEP_USES = 16, STEP_FREES = BLOCKS + 1 };

static const operation *by_value[VALUES];
static const operation *acting;

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count, (void)arguments;
    fuzz_begin();
    judge_begin();
    trouble_open();
    captures_open();
    size_t value = 0;
    for (size_t i = 0; i < operation_count; i++)
        for (unsigned j = 0; j < operations[i].weight; j++) {
            assert_true(value < VALUES);
            by_value[value++] = &operations[i];
        }
    assert_true(value == VALUES);
    model_open_memory();
    return 0;
}

static void begin(const uint8_t *data, size_t size)
{
    memset(&model, 0, sizeof model);
    model.input = (fuzz_input){.at = data, .end = data + size};
    unsigned when = fuzz_byte(&model.input);
    check_cu(test_sim_control()->set_policy((strata_sim_policy)(when % 3)));
    check_cu(test_sim_control()->set_seed(when / 3));
    fuzz_tell("policy %u, seed %u", when % 3, when / 3);
    assert_true(model_make_runtime(0));
    model_open_stream(ZERO, 0);
    model_open_stream(LEGACY, 0);
    model_open_stream(PER_THREAD, 0);
    model_open_stream(POOL, 0);
    model_open_stream(REGISTERED, 0);
    model_open_stream(UNKNOWN, 0);
}

static void act_and_look(void)
{
    acting->act();
    captures_check_thread();
}

/* Waiting here would end all captures, so it is done between steps. */
static void make_room(void)
{
    if (captures_any() && (!model_has_room(STEP_USES) || model.held_count + STEP_FREES > HELD))
        captures_end_all();
}

/* The byte of an operation chooses operation and player. In the last quarter of its values the operation is about
 * captures, and another byte chooses the player. */
static void step(void)
{
    make_room();
    unsigned word = fuzz_byte(&model.input), player = word / VALUES;
    bool plain = player < PLAYERS;
    const operation *which = plain ? by_value[word % VALUES] : captures_operation(word % VALUES);
    player = plain ? player : fuzz_below(&model.input, PLAYERS);
    fuzz_tell("player %u: %s", player, which->name);
    if (which->deal) {
        which->deal();
        return;
    }
    if (!players_has(player)) {
        if (model.stream_count == STREAMS)
            player = 0;
        else
            model_open_stream(PER_THREAD, player);
    }
    acting = which;
    players_do(player, act_and_look);
}

static void end(void)
{
    trouble_forget();
    captures_end_all();
    graphs_drop_all();
    while (model.use_count)
        operation_finish(model.use_count - 1);
    while (model.block_count)
        operation_free();
    model_verify();
    for (unsigned i = 1; i < PLAYERS; i++)
        players_leave(i);
    for (unsigned i = 0; i < PLAYERS; i++)
        captures_forget_player(i);
    for (size_t i = model.stream_count; i > 0; i--)
        if (model.streams[i - 1].kind < ZERO)
            model_close_stream(i - 1);
    for (unsigned i = 0; i < RUNTIMES; i++) {
        if (!model.runtimes[i].handle)
            continue;
        model_check_usage(&model.runtimes[i]);
        check_ok(strata_runtime_reap_pending(model.runtimes[i].handle));
        assert_true(strata_runtime_bytes_outstanding(model.runtimes[i].handle) == 0);
        model_end_runtime(i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    strata_sim_accounts before = fuzz_accounts();
    begin(data, size);
    for (unsigned i = 0; i < MOST_OPERATIONS && fuzz_has_more(&model.input); i++) {
        step();
        captures_check_alive();
    }
    end();
    fuzz_check_accounts(&before);
    return 0;
}
