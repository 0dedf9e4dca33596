/* The latest entries of a history, up to a number. Not safe for threads by itself. */
#ifndef STRATA_ADAPTERS_TORCH_RING_H
#define STRATA_ADAPTERS_TORCH_RING_H

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace strata_torch
{

template <typename Entry> class Ring
{
  public:
    /* Keeps the latest entries that are there, unless they are cleared. */
    void set(size_t most, bool clear)
    {
        most_ = most;
        std::rotate(entries_.begin(), middle(), entries_.end());
        next_ = 0; /* another size continues from the oldest entry */
        if (clear)
            entries_.clear();
        else if (entries_.size() > most)
            entries_.erase(entries_.begin(), entries_.end() - static_cast<std::ptrdiff_t>(most));
    }

    void keep(Entry &&entry)
    {
        if (entries_.size() < most_) {
            entries_.push_back(std::move(entry));
        } else if (!entries_.empty()) {
            entries_[next_] = std::move(entry);
            next_ = (next_ + 1) % entries_.size();
        }
    }

    /* Oldest first. */
    std::vector<Entry> entries() const
    {
        const auto oldest = entries_.begin() + static_cast<std::ptrdiff_t>(next_);
        std::vector<Entry> result(oldest, entries_.end());
        result.insert(result.end(), entries_.begin(), oldest);
        return result;
    }

  private:
    typename std::vector<Entry>::iterator middle()
    {
        return entries_.begin() + static_cast<std::ptrdiff_t>(next_);
    }

    size_t most_ = 0;
    size_t next_ = 0; /* the oldest, once there are as many as may be */
    std::vector<Entry> entries_;
};

} // namespace strata_torch

#endif
