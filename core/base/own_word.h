/* Words that one thread writes and any thread reads: that thread adds without a locked instruction.
 *
 * On x86-64 in one instruction instead of the load, addition and store that compilers make of atomic operations. It is
 * a load and a store all the same: another thread reads the word before or after it, and a store has release order. */
#ifndef STRATA_CORE_BASE_OWN_WORD_H
#define STRATA_CORE_BASE_OWN_WORD_H

#include <stdatomic.h>
#include <stdint.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define STRATA_OWN_WORD_BY_ATOMICS
#endif
#endif
#if !defined(__x86_64__) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STRATA_OWN_WORD_BY_ATOMICS /* a sanitizer does not see what an instruction of ours touches */
#endif

/* Relaxed. The calling thread is the word's. */
static inline void strata_own_word_add(_Atomic int64_t *word, int64_t by)
{
#ifdef STRATA_OWN_WORD_BY_ATOMICS
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + by, memory_order_relaxed);
#else
    __asm__("addq %1, %0" : "+m"(*word) : "er"(by) : "cc");
#endif
}

/* As strata_own_word_add, with release order. */
static inline void strata_own_word_add_release(_Atomic int64_t *word, int64_t by)
{
#ifdef STRATA_OWN_WORD_BY_ATOMICS
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + by, memory_order_release);
#else
    __asm__ volatile("addq %1, %0" : "+m"(*word) : "er"(by) : "cc", "memory");
#endif
}

#endif
