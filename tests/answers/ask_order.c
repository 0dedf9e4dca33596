/* Questions about the order of streams: work submitted to one stream while another is held, without an event between
 * them. */
#include "ask.h"

struct stream_kind {
    const char *name;
    CUstream stream;
};

void ask_stream_order(void)
{
    start();
    const struct stream_kind kinds[] = {
        {"null", NULL},
        {"legacy", CU_STREAM_LEGACY},
        {"per_thread", CU_STREAM_PER_THREAD},
        {"blocking", new_stream(CU_STREAM_DEFAULT)},
        {"other_blocking", new_stream(CU_STREAM_DEFAULT)},
        {"non_blocking", new_stream(CU_STREAM_NON_BLOCKING)},
        {"other_non_blocking", new_stream(CU_STREAM_NON_BLOCKING)},
    };
    enum { COUNT = sizeof kinds / sizeof kinds[0] };
    CUdeviceptr memory = new_memory(4 * KIB);
    for (int i = 0; i < COUNT; i++)
        warm_up(kinds[i].stream);
    for (int held = 0; held < COUNT; held++) {
        for (int later = 0; later < COUNT; later++) {
            if (later == held)
                continue;
            CUevent event = new_event();
            struct gate *gate = gate_hold(kinds[held].stream, GATE_LONG_MS);
            cu.MemsetD8Async(memory, 1, KIB, kinds[later].stream);
            cu.EventRecord(event, kinds[later].stream);
            CUresult result = await_event(event);
            bool held_on = gate_release(gate);
            ask(result, "stream_order.%s_held.%s", kinds[held].name, kinds[later].name);
            ask_yes(held_on, "stream_order.%s_held.%s.submitted_at_once", kinds[held].name, kinds[later].name);
            cu.CtxSynchronize();
            cu.EventDestroy(event);
        }
    }
    CUstream first = kinds[3].stream;
    CUstream second = kinds[4].stream;
    CUevent event = new_event();
    struct gate *gate = gate_hold(first, GATE_LONG_MS);
    ask(cu.StreamQuery(NULL), "stream_order.blocking_held.query_null");
    cu.MemsetD8Async(memory, 1, KIB, NULL);
    cu.MemsetD8Async(memory, 1, KIB, second);
    cu.EventRecord(event, second);
    ask(await_event(event), "stream_order.blocking_held.other_blocking_after_work_on_null");
    gate_release(gate);
    cu.CtxSynchronize();
    gate = gate_hold(first, GATE_LONG_MS);
    cu.EventRecord(event, NULL);
    ask(await_event(event), "stream_order.blocking_held.event_on_null_without_work");
    gate_release(gate);
    ask(cu.CtxSynchronize(), "stream_order.ctx_synchronize");
    gate = gate_hold(kinds[5].stream, GATE_SHORT_MS);
    cu.CtxSynchronize();
    ask_yes(!gate_release(gate), "stream_order.ctx_synchronize.waits_for_non_blocking");
    gate = gate_hold(kinds[5].stream, GATE_SHORT_MS);
    cu.StreamSynchronize(NULL);
    ask_yes(!gate_release(gate), "stream_order.synchronize_null.waits_for_non_blocking");
    gate = gate_hold(first, GATE_SHORT_MS);
    cu.StreamSynchronize(NULL);
    ask_yes(!gate_release(gate), "stream_order.synchronize_null.waits_for_blocking");
    gate = gate_hold(first, GATE_SHORT_MS);
    cu.StreamSynchronize(CU_STREAM_PER_THREAD);
    ask_yes(!gate_release(gate), "stream_order.synchronize_per_thread.waits_for_blocking");
    cu.CtxSynchronize();
}

static CUstream idle_stream(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    return stream;
}

static void ask_rerecord(void)
{
    CUstream held = idle_stream();
    CUstream waiter = idle_stream();
    CUstream idle = idle_stream();
    CUevent event = new_event();
    CUevent after = new_event();
    struct gate *gate = gate_hold(held, GATE_LONG_MS);
    cu.EventRecord(event, held);
    ask(cu.EventQuery(event), "event_order.recorded_behind_gate.query");
    cu.StreamWaitEvent(waiter, event, 0);
    cu.EventRecord(after, waiter);
    ask(cu.EventRecord(event, idle), "event_order.record_again_elsewhere");
    ask(await_event(event), "event_order.record_again_elsewhere.query");
    ask(cu.EventQuery(after), "event_order.record_again_elsewhere.earlier_wait_holds");
    ask(cu.EventDestroy(event), "event_order.destroy_waited_for");
    ask(await_event(after), "event_order.destroy_waited_for.wait_holds");
    ask_yes(gate_release(gate), "event_order.record_again_elsewhere.nothing_waited");
    ask(await_event(after), "event_order.released");
    cu.CtxSynchronize();
}

static void ask_transitive(void)
{
    CUstream first = idle_stream();
    CUstream second = idle_stream();
    CUstream third = idle_stream();
    CUevent event = new_event();
    CUevent next = new_event();
    CUevent last = new_event();
    struct gate *gate = gate_hold(first, GATE_LONG_MS);
    cu.EventRecord(event, first);
    cu.StreamWaitEvent(second, event, 0);
    cu.EventRecord(next, second);
    cu.StreamWaitEvent(third, next, 0);
    cu.EventRecord(last, third);
    ask(await_event(last), "event_order.two_hand_overs.third_stream_waits");
    ask(cu.StreamQuery(second), "event_order.two_hand_overs.query_second_stream");
    gate_release(gate);
    ask(await_event(last), "event_order.two_hand_overs.released");
    gate = gate_hold(first, GATE_SHORT_MS);
    cu.EventRecord(event, first);
    cu.EventSynchronize(event);
    ask_yes(!gate_release(gate), "event_order.event_synchronize.waits");
    gate = gate_hold(first, GATE_LONG_MS);
    cu.StreamWaitEvent(second, event, 0);
    ask(await_stream(second), "event_order.wait_for_earlier_record.not_held_by_later_work");
    gate_release(gate);
    cu.CtxSynchronize();
}

static void ask_elapsed(void)
{
    CUresult result;
    CUstream stream = idle_stream();
    CUevent from = NULL;
    CUevent to = NULL;
    float milliseconds = -1;
    cu.EventCreate(&from, CU_EVENT_DEFAULT);
    cu.EventCreate(&to, CU_EVENT_DEFAULT);
    cu.EventRecord(from, stream);
    struct gate *gate = gate_hold(stream, GATE_LONG_MS);
    cu.EventRecord(to, stream);
    ask(cu.EventElapsedTime(&milliseconds, from, to), "event_order.elapsed.not_ready");
    gate_release(gate);
    cu.StreamSynchronize(stream);
    result = cu.EventElapsedTime(&milliseconds, from, to);
    ask_fact(result, milliseconds > 0, "event_order.elapsed.positive");
    result = cu.EventElapsedTime(&milliseconds, to, from);
    ask_fact(result, milliseconds < 0, "event_order.elapsed.reversed.negative");
}

void ask_event_order(void)
{
    start();
    ask_rerecord();
    ask_transitive();
    ask_elapsed();
    CUstream stream = idle_stream();
    CUevent event = new_event();
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    cu.EventRecord(event, stream);
    ask(cu.EventDestroy(event), "event_order.destroy_pending");
    ask_yes(gate_release(gate), "event_order.destroy_pending.returns_at_once");
    ask(cu.StreamSynchronize(stream), "event_order.destroy_pending.stream_synchronize");
}
