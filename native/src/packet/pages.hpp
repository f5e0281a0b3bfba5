// Memory of large tables. Events touch them at random, so where the system offers large pages they are asked for:
// otherwise most of the time of a large fabric goes into looking up addresses.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace syncline::packet {

template <typename T>
struct LargePages {
    using value_type = T;
    static constexpr std::size_t kPage = std::size_t{2} << 20;
    static_assert(alignof(T) <= 64);

    LargePages() = default;
    template <typename U>
    LargePages(const LargePages<U>&) noexcept {}

    T* allocate(std::size_t count) {
        const std::size_t bytes = count * sizeof(T);
        void* memory = ::operator new(bytes, alignment(bytes));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
        // Only whole pages, and only advice: what fails changes nothing.
        if (bytes >= kPage) madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, std::size_t count) noexcept {
        ::operator delete(memory, alignment(count * sizeof(T)));
    }
    bool operator==(const LargePages&) const = default;

private:
    static constexpr std::align_val_t alignment(std::size_t bytes) {
        return std::align_val_t{bytes >= kPage ? kPage : 64};
    }
};

template <typename T>
using Table = std::vector<T, LargePages<T>>;

}  // namespace syncline::packet
