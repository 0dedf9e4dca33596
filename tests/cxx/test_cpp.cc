/* strata.hpp: what its objects own, and when it ends; what is thrown; both meanings of stream 0 in one program. */
#include <strata/strata.hpp>

#include "check.hpp"
#include "driver.hpp"
#include "meanings.hpp"

#include <cstring>
#include <thread>
#include <type_traits>

namespace
{

constexpr std::size_t BYTES = 4096;
constexpr std::size_t TOO_MANY = std::size_t{1} << 40;

template <class... Types> constexpr bool move_only()
{
    return ((std::is_nothrow_move_constructible_v<Types> && std::is_nothrow_move_assignable_v<Types> &&
             !std::is_copy_constructible_v<Types> && !std::is_copy_assignable_v<Types> &&
             std::is_nothrow_destructible_v<Types>)&&...);
}

static_assert(
    move_only<strata::runtime, strata::stack, strata::layer, strata::block, strata::stream, strata::registered_stream,
              strata::launch, strata::reference, strata::capture_pool, strata::capture, strata::graph>());
static_assert(std::is_base_of_v<strata::out_of_memory, strata::out_of_budget>);
static_assert(std::is_constructible_v<strata::runtime, strata_runtime *> &&
              !std::is_constructible_v<strata::runtime, strata::runtime_ref> &&
              !std::is_convertible_v<strata_runtime *, strata::runtime>);

std::size_t live(strata::runtime_ref runtime)
{
    return runtime.usage().live_blocks;
}

/* What the log callback heard while this lived. */
class log
{
  public:
    log()
    {
        strata_set_log_callback(hear, this);
    }

    log(const log &) = delete;
    log &operator=(const log &) = delete;

    ~log()
    {
        strata_set_log_callback(nullptr, nullptr);
    }

    strata_status last = STRATA_SUCCESS;

  private:
    static void hear(const strata_error *error, void *data)
    {
        static_cast<log *>(data)->last = error->status;
    }
};

/* ---- blocks ---- */

void a_block_is_freed_once_wherever_it_was_moved()
{
    strata::runtime runtime("async");
    strata::stream stream(runtime);
    {
        strata::block first = runtime.allocate(BYTES, stream), second(runtime, 2 * BYTES, stream);
        CHECK(live(runtime) == 2 && first.bytes() >= BYTES && first.address() != second.address());
        const CUdeviceptr address = first.address();
        strata::block moved(std::move(first));
        CHECK(!first && first.address() == 0 && moved && moved.address() == address && live(runtime) == 2);
        CHECK_OK(first.free());
        second = std::move(moved);
        CHECK(live(runtime) == 1 && second.address() == address && !moved);
        strata::block &same = second;
        second = std::move(same);
        CHECK(live(runtime) == 1 && second.address() == address);
    }
    CHECK(live(runtime) == 0);
}

void a_free_that_is_repeated_does_nothing()
{
    strata::runtime runtime("async");
    strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream);
    CHECK_OK(block.free());
    CHECK_OK(block.free());
    CHECK_OK(block.free(stream));
    CHECK(!block && live(runtime) == 0);
}

void alignment_and_tag_reach_the_stack()
{
    strata::runtime runtime("aligned, async");
    strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream, {65536, strata::tag_of("weights")});
    CHECK(block.address() % 65536 == 0 && block.facts().alignment >= 65536);
    CHECK(std::strcmp(strata_tag_name(block.facts().tag), "weights") == 0);
    CHECK_THROWS(strata::block(runtime, BYTES, stream, {3, 0}), strata::error);
}

void a_block_of_an_unknown_stream_is_freed_on_that_stream()
{
    test::own_stream own;
    strata::runtime runtime("async");
    {
        log heard;
        strata::block block = runtime.allocate(BYTES, strata::on(own));
        CHECK(block.facts().stream == own);
        CHECK_OK(block.free());
        CHECK(heard.last == STRATA_SUCCESS && live(runtime) == 0);
    }
    strata::registered_stream known(runtime, own);
    strata::block block = runtime.allocate(BYTES, known);
    CHECK_OK(known.reset());
    CHECK(!known);
    CHECK_OK(block.free()); /* after the work that the stream had */
    CHECK(live(runtime) == 0);
}

void ownership_goes_to_the_c_interface_and_back()
{
    strata::runtime runtime("async");
    strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream);
    const strata_block facts = block.release();
    CHECK(!block && live(runtime) == 1);
    strata::block again(runtime, facts);
    CHECK(again.address() == facts.address);
    CHECK_OK(again.free());
    CHECK(live(runtime) == 0);
    CHECK_OK(stream.reset());
    strata_runtime *raw = runtime.release();
    CHECK(!runtime && raw);
    strata::runtime owner(raw);
    CHECK(owner.get() == raw && live(owner) == 0);
}

void a_destructor_that_fails_tells_the_log_and_throws_nothing()
{
    strata::runtime runtime("async");
    strata::stream stream(runtime);
    log heard;
    {
        strata::block block(runtime, BYTES, stream);
        CHECK_OK(strata_runtime_deallocate(runtime, &block.facts()));
    }
    CHECK(heard.last == STRATA_ERROR_DOUBLE_FREE);
}

/* ---- exceptions ---- */

template <class Exception> bool catches(const strata::runtime &runtime)
{
    try {
        (void)runtime.allocate(TOO_MANY, strata::on(nullptr));
    } catch (const Exception &) {
        return true;
    } catch (...) {
    }
    return false;
}

void a_budget_that_is_exceeded_is_caught_as_each_of_its_kinds()
{
    strata::runtime runtime("budget(limit=1MiB), async");
    CHECK(catches<strata::error>(runtime) && catches<strata::out_of_memory>(runtime) &&
          catches<strata::out_of_budget>(runtime) && catches<std::bad_alloc>(runtime) &&
          catches<std::exception>(runtime));
    try {
        (void)runtime.allocate(TOO_MANY, strata::on(nullptr));
        CHECK(false);
    } catch (const strata::error &failed) {
        CHECK(failed.status() == STRATA_ERROR_OUT_OF_BUDGET && failed.record().requested == TOO_MANY);
        CHECK(failed.record().limit == std::size_t{1} << 20);
        CHECK(std::strstr(failed.what(), "STRATA_ERROR_OUT_OF_BUDGET: ") == failed.what());
        CHECK(std::strstr(failed.what(), failed.message()) != nullptr && *failed.message());
        CHECK(std::strcmp(failed.message(), strata_last_error()->message) == 0);
    }
    try {
        (void)runtime.allocate(TOO_MANY, strata::on(nullptr));
    } catch (const std::exception &failed) {
        CHECK(std::strstr(failed.what(), "STRATA_ERROR_OUT_OF_BUDGET") != nullptr);
    }
    CHECK(live(runtime) == 0);
}

void memory_that_the_device_lacks_is_no_budgets_failure()
{
    strata::runtime runtime("async");
    CHECK(catches<strata::out_of_memory>(runtime) && catches<std::bad_alloc>(runtime));
    CHECK(!catches<strata::out_of_budget>(runtime));
}

void other_failures_are_no_bad_alloc()
{
    bool plain = false;
    try {
        strata::runtime runtime("no_such_layer");
    } catch (const std::bad_alloc &) {
    } catch (const std::exception &failed) {
        plain = dynamic_cast<const strata::error &>(failed).status() == STRATA_ERROR_SYNTAX;
    }
    CHECK(plain);
    CHECK_THROWS(strata::runtime_ref::of_device(12345), strata::error);
}

void a_status_without_a_record_has_its_own_text()
{
    try {
        strata::check(STRATA_ERROR_TIMEOUT);
        CHECK(false);
    } catch (const strata::error &failed) {
        CHECK(failed.status() == STRATA_ERROR_TIMEOUT);
        CHECK(std::strcmp(failed.message(), strata_status_text(STRATA_ERROR_TIMEOUT)) == 0);
    }
}

void the_twins_answer_in_place_of_throwing()
{
    strata::runtime runtime("budget(limit=1MiB), async");
    strata::stream stream(runtime);
    strata::block block;
    static_assert(noexcept(strata::block::try_make(block, runtime, BYTES, stream)));
    CHECK_STATUS(strata::block::try_make(block, runtime, TOO_MANY, stream), STRATA_ERROR_OUT_OF_BUDGET);
    CHECK(!block);
    CHECK_OK(strata::block::try_make(block, runtime, BYTES, stream));
    CHECK_OK(strata::block::try_make(block, runtime, BYTES, stream)); /* the one before is freed */
    CHECK(live(runtime) == 1);
    strata_runtime_config config{};
    config.stack_text = "async(";
    strata::runtime other(nullptr);
    CHECK_STATUS(strata::runtime::try_make(other, config), STRATA_ERROR_SYNTAX);
    CHECK(!other);
}

/* ---- runtimes, streams, stacks ---- */

void a_runtime_with_a_live_block_stays_for_it()
{
    strata::stream stream;
    strata::block block;
    strata_runtime *raw;
    {
        strata::runtime runtime("async");
        raw = runtime.get();
        CHECK_OK(strata::stream::try_make(stream, runtime));
        CHECK_OK(strata::block::try_make(block, runtime, BYTES, stream));
        CHECK_STATUS(runtime.reset(), STRATA_ERROR_BUSY);
        CHECK(runtime);
    }
    CHECK(block.bytes() >= BYTES);
    CHECK_OK(block.free());
    CHECK_OK(stream.reset());
    CHECK_OK(strata_runtime_destroy(raw));
}

void what_was_moved_from_is_empty_and_ends_without_effect()
{
    strata::runtime runtime("async"), moved(std::move(runtime));
    CHECK(!runtime && moved);
    CHECK_OK(runtime.reset());
    strata::stream stream(moved), other(std::move(stream));
    CHECK(!stream && other);
    CHECK_OK(stream.reset());
    strata::launch launch(moved, other), taken(std::move(launch));
    CHECK(!launch && taken);
    CHECK_THROWS(launch.preflight(), strata::error);
    CHECK_OK(launch.end());
    taken.preflight();
    taken.commit();
    CHECK_OK(taken.end());
    CHECK_OK(taken.end());
    strata::reference ref = strata::reference::of<float>(moved, 16, other), kept(std::move(ref));
    CHECK(!ref && kept.size() == 16);
    strata::capture capture(moved, other), goes_on(std::move(capture));
    CHECK(!capture && goes_on);
    strata::graph graph = goes_on.end(), last(std::move(graph));
    CHECK(!goes_on && !graph && last);
}

void a_launch_that_was_moved_from_pins_nothing()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream);
    strata::launch first(runtime, stream), second;
    first.use(block, STRATA_ACCESS_WRITE);
    second = std::move(first);
    CHECK_THROWS(first.use(block, STRATA_ACCESS_READ), strata::error);
    CHECK_THROWS(first.preflight(), strata::error);
    second.preflight();
    second.commit();
    CHECK_THROWS(first.commit(), strata::error);
    CHECK_OK(second.end());
    CHECK_OK(block.free());
}

void layers_that_make_no_stack_are_still_the_callers()
{
    std::vector<strata::layer> layers;
    layers.push_back(strata::layer::make(strata_async_create, 0, nullptr));
    layers.push_back(strata::layer::make(strata_statistics_create, nullptr));
    CHECK_THROWS(strata::stack(layers, 0), strata::error);
    CHECK(layers.size() == 2 && layers[0] && layers[1]);
    std::swap(layers[0], layers[1]);
    strata::runtime runtime(strata::stack(layers, 0));
    CHECK(layers.empty());
    strata::stream stream(runtime);
    const strata::block block(runtime, BYTES, stream);
    CHECK(strata_stack_layer(strata_runtime_stack(runtime), "statistics", 0) != nullptr);
}

void a_runtime_tells_what_its_stack_holds()
{
    strata::stack stack("budget(limit=8MiB), pool");
    strata::runtime runtime(std::move(stack));
    CHECK(!stack && runtime.device() == 0);
    strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream);
    CHECK(runtime.budget().limit == std::size_t{8} << 20 && runtime.budget().in_use >= BYTES);
    CHECK(runtime.bytes_outstanding() >= BYTES && runtime.find(block.address() + 1).address == block.address());
    CHECK_THROWS((void)runtime.find(1), strata::error);
    CHECK_OK(block.free());
    stream.synchronize();
    runtime.reap_pending();
    CHECK(runtime.bytes_outstanding() == 0 && runtime.usage().reserved_bytes > 0);
    CHECK(runtime.trim() > 0 && runtime.usage().reserved_bytes == 0);
}

void a_runtime_that_is_not_made_leaves_the_stack()
{
    strata::stack stack("async"), empty;
    CHECK_OK(empty.reset());
    strata_runtime_config config{};
    config.device = 12345;
    config.stack = stack.get();
    CHECK_THROWS(strata::runtime{config}, strata::error);
    strata::runtime runtime(std::move(stack));
    CHECK(runtime && !stack);
}

/* ---- launches, references, graphs ---- */

void a_launch_orders_streams_and_counts_as_submitted_where_work_throws()
{
    strata::runtime runtime("async");
    strata::stream writer(runtime), reader(runtime);
    strata::block block(runtime, BYTES, writer);
    test::make_current();
    strata::launch(runtime, writer).use(block, STRATA_ACCESS_WRITE).submit([&] {
        test::fill(block.address(), 7, BYTES, writer.get());
    });
    strata::launch(runtime, reader).use(block, STRATA_ACCESS_READ).submit([] {});
    CHECK(test::first_byte(block.address(), reader.get()) == 7);
    log heard;
    try {
        strata::launch(runtime, reader).use(block, STRATA_ACCESS_WRITE).submit([] { throw std::bad_alloc(); });
        CHECK(false);
    } catch (const std::bad_alloc &) {
        CHECK(heard.last == STRATA_ERROR_NOT_COMMITTED);
    }
    const strata_block stale = block.facts();
    CHECK_OK(block.free());
    strata::launch late(runtime, reader);
    CHECK_THROWS(late.use(stale, STRATA_ACCESS_READ), strata::error);
}

void references_outlive_their_runtime_and_are_stale()
{
    strata::reference ref;
    {
        strata::runtime runtime("async");
        strata::stream stream(runtime);
        ref = strata::reference::adopt(strata::block(runtime, BYTES, stream), STRATA_ELEMENT_F32, BYTES / 4);
        CHECK(ref.data<float>() != nullptr && ref.size() == BYTES / 4 && ref.type() == STRATA_ELEMENT_F32);
        strata::reference copy = ref.clone(), part = ref.view(8, 2, STRATA_ELEMENT_F32);
        CHECK(part.access().address == ref.access().address + 8 && copy.access().address == ref.access().address);
        strata::block small(runtime, 16, stream);
        CHECK_THROWS(strata::reference::adopt(std::move(small), STRATA_ELEMENT_F64, 1 << 20), strata::error);
        CHECK(small);
    }
    try {
        (void)ref.access();
        CHECK(false);
    } catch (const strata::error &failed) {
        CHECK(failed.status() == STRATA_ERROR_STALE);
    }
    CHECK_OK(ref.reset());
}

void a_capture_becomes_a_graph_or_is_discarded()
{
    strata::runtime runtime("async");
    strata::stream stream(runtime);
    strata::capture_pool pool(runtime, "steps");
    test::make_current();
    strata::reference ref = strata::reference::of<unsigned char>(runtime, BYTES, stream);
    const CUdeviceptr address = ref.access().address;
    {
        const strata::capture left(runtime, stream);
        CHECK((strata_is_stream_capturing)(runtime, stream.get()));
    }
    CHECK(!(strata_is_stream_capturing)(runtime, stream.get()));
    strata::capture capture(runtime, stream, STRATA_CAPTURE_GLOBAL, &pool);
    {
        strata::block scratch = runtime.allocate(BYTES, stream);
        test::fill(scratch.address(), 1, BYTES, stream.get());
    }
    strata::launch(runtime, stream).use(ref, STRATA_ACCESS_WRITE).submit([&] {
        test::fill(address, 9, BYTES, stream.get());
    });
    const strata::graph graph = capture.end();
    CHECK(graph.node_count() == 2 && graph.replays() == 0 && pool.usage().reserved >= BYTES);
    graph.upload(stream);
    graph.launch(stream);
    CHECK(graph.replays() == 1 && test::first_byte(address, stream.get()) == 9);
}

void a_graph_takes_the_work_of_another_capture()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    const strata::block block(runtime, BYTES, stream);
    test::make_current();
    const auto captured = [&](unsigned char value) {
        strata::capture capture(runtime, stream);
        strata::launch(runtime, stream).use(block, STRATA_ACCESS_WRITE).submit([&] {
            test::fill(block.address(), value, BYTES, stream.get());
        });
        return capture;
    };
    const strata::graph graph = captured(5).end();
    graph.launch(stream);
    CHECK(test::first_byte(block.address(), stream.get()) == 5);
    strata::capture other = captured(6);
    other.end_into(graph);
    CHECK(!other);
    graph.launch(stream);
    CHECK(graph.replays() == 2 && test::first_byte(block.address(), stream.get()) == 6);
}

void a_capture_that_a_graph_does_not_take_is_still_ended()
{
    strata::runtime runtime("pool");
    const strata::stream stream(runtime);
    const strata::graph none;
    const auto refused = [](strata::capture &capture, const strata::graph &graph) {
        try {
            capture.end_into(graph);
        } catch (const strata::error &failed) {
            return failed.status();
        }
        return STRATA_SUCCESS;
    };
    const strata::graph graph = strata::capture(runtime, stream).end();
    {
        strata::capture capture(runtime, stream);
        (void)strata::block(runtime, BYTES, stream); /* of a pool that is not the graph's */
        CHECK_STATUS(refused(capture, graph), STRATA_ERROR_INVALID_VALUE);
        CHECK_STATUS(refused(capture, none), STRATA_ERROR_INVALID_VALUE);
        CHECK(capture && (strata_is_stream_capturing)(runtime, stream.get()));
    }
    CHECK(!(strata_is_stream_capturing)(runtime, stream.get()));
    strata::capture again(runtime, stream);
    CHECK_STATUS(refused(again, none), STRATA_ERROR_INVALID_VALUE);
    CHECK(again.end().node_count() == 0 && !again);
}

void a_capture_that_another_thread_cannot_end_goes_on()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    strata::capture capture(runtime, stream);
    strata_status there = STRATA_SUCCESS;
    std::thread([&] {
        try {
            (void)capture.end();
        } catch (const strata::error &failed) {
            there = failed.status();
        }
    }).join();
    CHECK_STATUS(there, STRATA_ERROR_STREAM_MISUSE);
    CHECK(capture && (strata_is_stream_capturing)(runtime, stream.get()));
    CHECK(capture.end().node_count() == 0);
    CHECK(!capture);
}

void a_launch_may_be_cancelled_and_name_addresses()
{
    strata::runtime runtime("async");
    const strata::stream stream(runtime);
    strata::block block(runtime, BYTES, stream);
    log heard;
    {
        strata::launch launch(runtime, stream);
        launch.use(block.address() + 8, STRATA_ACCESS_READ).preflight();
        CHECK_STATUS(block.free(), STRATA_ERROR_BLOCK_IN_USE);
        CHECK(block);
        launch.cancel();
    }
    CHECK(heard.last == STRATA_ERROR_BLOCK_IN_USE);
    CHECK_OK(block.free());
}

/* ---- stream 0 ---- */

void two_parts_of_a_program_mean_different_streams_by_zero()
{
    const meanings::meaning here = strata::on, there = meanings::on_per_thread();
    CHECK(here != there);
    CHECK(here(nullptr).handle() == nullptr && here(nullptr).known());
    CHECK(there(nullptr).handle() == CU_STREAM_PER_THREAD && !there(nullptr).known());
    CHECK(here(CU_STREAM_PER_THREAD) == there(CU_STREAM_PER_THREAD));
    CHECK(here(CU_STREAM_LEGACY) == there(CU_STREAM_LEGACY) && there(CU_STREAM_LEGACY).known());
    strata::runtime runtime("async");
    strata::block mine = runtime.allocate(BYTES, strata::on(nullptr));
    strata::block theirs = meanings::allocate_on_zero(runtime, BYTES);
    CHECK(mine.facts().stream == nullptr && theirs.facts().stream == CU_STREAM_PER_THREAD);
    meanings::free_on_zero(std::move(mine));
    meanings::synchronize_zero(runtime);
    CHECK_OK(theirs.free(strata::on(nullptr)));
    CHECK(live(runtime) == 0);
}

void an_exception_of_one_part_is_caught_in_the_other()
{
    strata::runtime runtime("budget(limit=1MiB), async");
    CHECK_THROWS(meanings::exceed(runtime), strata::out_of_budget);
}

void a_threads_own_stream_may_end_in_another_thread()
{
    strata::runtime runtime("async");
    log heard;
    strata::block block;
    std::thread([&] { block = meanings::allocate_on_zero(runtime, BYTES); }).join();
    CHECK_OK(block.free());
    CHECK(heard.last == STRATA_SUCCESS && live(runtime) == 0);
}

} // namespace

int main()
{
    static const test::test_case cases[] = {
        CASE(a_block_is_freed_once_wherever_it_was_moved),
        CASE(a_free_that_is_repeated_does_nothing),
        CASE(alignment_and_tag_reach_the_stack),
        CASE(a_block_of_an_unknown_stream_is_freed_on_that_stream),
        CASE(ownership_goes_to_the_c_interface_and_back),
        CASE(a_destructor_that_fails_tells_the_log_and_throws_nothing),
        CASE(a_budget_that_is_exceeded_is_caught_as_each_of_its_kinds),
        CASE(memory_that_the_device_lacks_is_no_budgets_failure),
        CASE(other_failures_are_no_bad_alloc),
        CASE(a_status_without_a_record_has_its_own_text),
        CASE(the_twins_answer_in_place_of_throwing),
        CASE(a_runtime_with_a_live_block_stays_for_it),
        CASE(what_was_moved_from_is_empty_and_ends_without_effect),
        CASE(a_launch_that_was_moved_from_pins_nothing),
        CASE(layers_that_make_no_stack_are_still_the_callers),
        CASE(a_runtime_tells_what_its_stack_holds),
        CASE(a_runtime_that_is_not_made_leaves_the_stack),
        CASE(a_launch_orders_streams_and_counts_as_submitted_where_work_throws),
        CASE(references_outlive_their_runtime_and_are_stale),
        CASE(a_capture_becomes_a_graph_or_is_discarded),
        CASE(a_graph_takes_the_work_of_another_capture),
        CASE(a_capture_that_a_graph_does_not_take_is_still_ended),
        CASE(a_capture_that_another_thread_cannot_end_goes_on),
        CASE(a_launch_may_be_cancelled_and_name_addresses),
        CASE(two_parts_of_a_program_mean_different_streams_by_zero),
        CASE(an_exception_of_one_part_is_caught_in_the_other),
        CASE(a_threads_own_stream_may_end_in_another_thread),
    };
    return test::run(cases);
}
