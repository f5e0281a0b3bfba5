// The state of one exchange: shards out, sum, sums out, back. It waits for nobody: what arrives moves it on.
#pragma once

#include <condition_variable>
#include <memory>
#include <vector>

#include "hub.hpp"

namespace syncline::wire {

// What stands before the payload of every message of a lane; both ends must mean the same.
struct Prefix {
    std::uint32_t protocol, codec, layout, sequence, step, flags, origin, detail;
};
static_assert(sizeof(Prefix) == 32);
constexpr std::uint32_t kLaneProtocol = 0x534e4c01;
constexpr std::uint32_t kNotFinite = 1, kFailed = 2;

class LaneState final : public Listener {
   public:
    LaneState(Hub& hub, LaneSpec spec);

    Part place(std::uint32_t key, int peer, std::uint32_t total) override;
    void arrived(std::uint32_t key, int peer, std::uint32_t total) override;
    void sent(std::uint32_t key, int peer) override;

    // With the hub's lock held.
    void post(Posting posting);
    bool is_reduced() const { return is_reduced_ || is_over(); }
    bool is_done() const;
    bool is_busy() const { return num_tasks_ > 0; }
    // Who waits for this lane is woken when what it waits for is there, and not for every message.
    enum class Until { reduced, done };
    std::condition_variable& waiting_for(Until until) { return until == Until::done ? done_ : reduced_; }
    void wake_all();
    Outcome outcome() const { return outcome_; }
    // Something that ends a wait though nothing arrived; fine when there is none.
    Outcome trouble_with_peers() const;
    int first_late() const;
    void open_first();
    // Have room for all shards of this lane at once kept with the hub, or no more.
    void expect_rooms(bool some);
    // Give back what was asked for; false while something of this lane is in use. `waits`: also while peers lack it.
    bool leave(bool waits);
    bool hand_over();
    std::uint32_t tag() const { return spec_.tag; }

    void take_back(const float* values, float* residual);
    std::vector<WorkSpan> take_spans();
    std::int64_t sent_bytes() const { return sent_bytes_; }

   private:
    static constexpr std::uint32_t kShards = 0, kSums = 1, kFailure = 2;

    struct Side {  // all that concerns one peer
        std::vector<std::uint8_t> out, sum_in;
        Rooms::Room in;  // from the first byte of the shard until it is summed
        Prefix shard_prefix{}, sum_prefix{};
        std::uint32_t shard_total = 0, sum_total = 0;
        double shard_s = 0.0, sum_s = 0.0;  // when they were there
        bool has_shard = false, has_sum = false, is_decoded = false, is_placed = false, is_open = false;
        FrameSums shard_sums;
        OutPointer shard_out, sum_out;
    };

    bool is_over() const { return outcome_.status != Status::fine; }
    Side& side(int peer) { return sides_[static_cast<std::size_t>(peer)]; }
    std::int64_t low(int shard) const { return spec_.bounds[static_cast<std::size_t>(shard)]; }
    std::int64_t length(int shard) const { return spec_.bounds[static_cast<std::size_t>(shard) + 1] - low(shard); }
    std::size_t payload_bytes(int shard) const;
    Prefix prefix(std::uint32_t flags, int origin, int detail) const;
    int find(int shard) const;
    Outcome judged(const Prefix& got, std::uint32_t total, std::size_t payload, int peer) const;
    // Whether what is sent are the values where they lie: shards, and sums.
    bool sends_in_place() const { return is_plain_ && posting_.residual == nullptr; }

    void run(Hub::Kind kind, void (LaneState::*work)(int), int argument);
    Sealer sealer(std::size_t payload) const;
    void do_encode(int peer);
    void do_check(int);
    void do_reduce(int);
    void reduce_all(codec::Reduction all);
    void do_decode(int owner);
    void encoded(int shard, bool finite);
    void send_shards(std::uint32_t flags, int origin, int detail);
    void decide();
    void maybe_reduce();
    void send_sums();
    void fail(Outcome outcome);
    void moved();
    void took(Work work, int peer, double began_s, std::int64_t size);

    Hub& hub_;
    const LaneSpec spec_;
    const int rank_, size_;
    const bool is_plain_;
    std::vector<int> peers_;  // nearest first
    std::vector<Side> sides_;
    std::vector<std::uint8_t> sum_;
    FrameSums sum_sums_;
    Prefix shard_prefix_{}, sum_prefix_{}, fail_prefix_{};
    Posting posting_;
    Outcome outcome_, told_by_;
    std::vector<WorkSpan> spans_;
    std::vector<int> bad_;
    std::vector<OutPointer> told_;
    std::condition_variable reduced_, done_;
    double posted_s_ = 0.0, summed_s_ = 0.0;
    int num_to_encode_ = 0, num_tasks_ = 0;
    bool is_handed_over_ = false;
    bool is_encoded_ = true, is_decided_ = true, is_reducing_ = false, is_reduced_ = true, is_told_ = false;
    std::int64_t sent_bytes_ = 0;
};

}  // namespace syncline::wire
