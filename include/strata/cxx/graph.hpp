/* Captures and graphs (graph.h).
 *
 *     strata::capture capture(runtime, stream);
 *     ... work on the stream, and allocations for it ...
 *     strata::graph graph = capture.end();
 *     graph.launch(stream);
 *
 * A capture that is not ended is discarded by its destructor. */
#ifndef STRATA_CXX_GRAPH_HPP
#define STRATA_CXX_GRAPH_HPP

#include <strata/cxx/runtime.hpp>
#include <strata/graph.h>

namespace strata
{

class capture_pool : public detail::handle<strata_capture_pool, strata_capture_pool_release>
{
  public:
    using handle::handle;

    explicit capture_pool(runtime_ref runtime, const char *name = nullptr)
    {
        check(strata_capture_pool_create(runtime.get(), name, place()));
    }

    strata_capture_pool_usage usage() const
    {
        strata_capture_pool_usage counted;
        check(strata_capture_pool_get_usage(get(), &counted));
        return counted;
    }
};

/* Its end may come while launches are in flight. */
class graph : public detail::handle<strata_graph, strata_graph_destroy>
{
  public:
    using handle::handle;

    void launch(stream_ref stream) const
    {
        check((strata_graph_launch)(get(), stream.handle()));
    }

    void upload(stream_ref stream) const
    {
        check((strata_graph_upload)(get(), stream.handle()));
    }

    std::uint64_t replays() const noexcept
    {
        return strata_graph_num_replays(get());
    }

    std::size_t node_count() const noexcept
    {
        return strata_graph_node_count(get());
    }
};

class capture
{
  public:
    capture() = default;

    /* `pool`: NULL for one of the graph's own. */
    capture(runtime_ref runtime, stream_ref stream, strata_capture_mode mode = STRATA_CAPTURE_GLOBAL,
            const capture_pool *pool = nullptr)
    {
        check(try_make(*this, runtime, stream, mode, pool));
    }

    static strata_status try_make(capture &out, runtime_ref runtime, stream_ref stream,
                                  strata_capture_mode mode = STRATA_CAPTURE_GLOBAL,
                                  const capture_pool *pool = nullptr) noexcept
    {
        strata_status status = out.discard();
        if (status == STRATA_SUCCESS)
            status = (strata_capture_begin)(runtime.get(), stream.handle(), mode, pool ? pool->get() : nullptr);
        if (status == STRATA_SUCCESS) {
            out.runtime_ = runtime.get();
            out.stream_ = stream.handle();
        }
        return status;
    }

    capture(capture &&other) noexcept : runtime_(std::exchange(other.runtime_, nullptr)), stream_(other.stream_)
    {
    }

    capture &operator=(capture &&other) noexcept
    {
        if (this != &other) {
            (void)discard();
            runtime_ = std::exchange(other.runtime_, nullptr);
            stream_ = other.stream_;
        }
        return *this;
    }

    capture(const capture &) = delete;
    capture &operator=(const capture &) = delete;

    ~capture()
    {
        (void)discard();
    }

    explicit operator bool() const noexcept
    {
        return runtime_ != nullptr;
    }

    /* After an exception the object is empty if the capture has ended; after STREAM_MISUSE (another thread's call) the
     * capture goes on. */
    graph end()
    {
        strata_graph *made = nullptr;
        check(ended((strata_capture_end)(runtime_, stream_, &made)));
        return graph(made);
    }

    /* Ends it into a graph that was made before (strata_graph_update). As end(); the capture goes on also after
     * INVALID_VALUE, for a graph with another pool: end() makes a new one. */
    void end_into(const graph &updated)
    {
        check(ended((strata_graph_update)(updated.get(), stream_, nullptr, nullptr)));
    }

    strata_status discard() noexcept
    {
        return runtime_ ? ended((strata_capture_discard)(runtime_, stream_)) : STRATA_SUCCESS;
    }

  private:
    strata_status ended(strata_status status) noexcept
    {
        if (status == STRATA_SUCCESS || !(strata_is_stream_capturing)(runtime_, stream_))
            runtime_ = nullptr;
        return status;
    }

    strata_runtime *runtime_ = nullptr; /* NULL: no capture */
    CUstream stream_ = nullptr;
};

} // namespace strata

#endif
