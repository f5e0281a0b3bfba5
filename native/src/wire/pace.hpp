// How fast a line brings what it is given, as far as is known.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace syncline::wire {

class Pace {
   public:
    // It is given something, and had nothing before.
    void begin(double now) {
        from_s_ = now;
        bytes_ = 0;
    }

    // It has brought so many bytes more; `enough` of them tell how fast it is.
    void brought(std::size_t bytes, std::size_t enough, double now) {
        bytes_ += bytes;
        const double took_s = now - from_s_;
        if (took_s < kLeastS) return;
        const double rate = static_cast<double>(bytes_) / took_s;
        from_s_ = now;
        if (std::exchange(bytes_, 0) < enough && rate < rate_Bps_) return;  // it had little to bring
        const bool is_first = rate_Bps_ == 0.0, has_fallen = rate < 0.25 * rate_Bps_;  // which is believed at once
        learn(is_first || has_fallen ? rate : 0.5 * rate_Bps_ + 0.5 * rate, now);
    }

    // It brought no more than this.
    void at_most(double rate_Bps, double now) { learn(rate_Bps_ == 0.0 ? rate_Bps : std::min(rate_Bps_, rate_Bps), now); }

    // 0: not known yet.
    double rate_Bps() const { return rate_Bps_; }

    // Until so many bytes are there. What was slow long ago may be fast again, and is tried now and then.
    double takes_s(double bytes, double now) const { return bytes / (rate_Bps_ * std::exp2((now - known_s_) / kDoublesS)); }

   private:
    static constexpr double kLeastS = 0.01, kDoublesS = 4.0;

    void learn(double rate_Bps, double now) {
        rate_Bps_ = rate_Bps;
        known_s_ = now;
    }

    double rate_Bps_ = 0.0, known_s_ = 0.0, from_s_ = 0.0;
    std::size_t bytes_ = 0;
};

// Whether the other alone brings everything that waits so much sooner than this one would bring the next frame of it.
// Of several the one that brings a frame soonest is never passed over, so nothing is left lying.
inline bool is_passed_over(const Pace& own, double own_bytes, const Pace& other, double other_bytes, double sooner_s,
                           double now) {
    if (own.rate_Bps() == 0.0 || other.rate_Bps() == 0.0) return false;
    return other.takes_s(other_bytes, now) + sooner_s < own.takes_s(own_bytes, now);
}

}  // namespace syncline::wire
