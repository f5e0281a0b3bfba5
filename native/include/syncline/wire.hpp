// A transport between the ranks of a team: threads of its own, one or more connections on every rail, frames that are
// acknowledged, and whole exchanges (encode, scatter, sum, gather, decode) executed without their caller.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "syncline/codec.hpp"

namespace syncline::wire {

// A network interface of this host: its address, and its name where sockets are to be tied to it ("": only to the
// address).
struct Rail {
    std::string address;
    std::string interface;
};

struct Endpoint {
    std::string address;
    std::uint16_t port;
};

struct Options {
    int rank = 0;
    int size = 1;
    std::vector<Rail> rails;
    std::vector<std::uint8_t> secret;
    int connections = 1;  // on each rail, to each peer
    int threads = 1;
    std::uint32_t frame_bytes = 128u << 10;
    double stall_s = 0.2;   // a rail that acknowledges nothing for so long is passed over
    double give_up_s = 1.0; // one that stays so for so long is closed and dialed again
    std::uint32_t lead_bytes = 512u << 10;    // what one peer may be given more than another that waits; 0: any
    std::uint32_t unsent_bytes = 512u << 10;  // what a connection holds that is not sent yet; 0: as the kernel likes
};

// How numbers become bytes; payload sizes come from whoever makes a lane.
struct Coder {
    enum class Family : int { block = 0, sign = 1, cast = 2 };
    Family family = Family::cast;
    codec::Quantiser quantiser{};
    codec::Short cast = codec::Short::fp32;
    std::int64_t block = 0;
};

struct LaneSpec {
    std::uint32_t tag = 0;
    std::vector<std::int64_t> bounds;         // size + 1 cuts: shard k is from bounds[k] to bounds[k + 1]
    std::vector<std::int64_t> payload_bytes;  // of each shard, encoded
    Coder coder;
    bool scatter_only = false;  // the sum of the own shard stays with its owner, in float32
    int priority = 0;           // larger goes first
    std::uint32_t codec = 0, layout = 0;
    int origin = 0;                 // this rank's number for others
    std::vector<std::int64_t> ends;  // of the parameters, in elements of the bucket
    std::int64_t offset = 0;         // of this lane's first element in the bucket
};

enum class Status : int { fine = 0, troubled = 1, failed = 2, disagreed = 3, lost = 4, late = 5, closed = 6 };

// `rank` had trouble in `parameter`; or failed; or sent what was not due; or is lost; or is late.
struct Outcome {
    Status status = Status::fine;
    int rank = -1;
    int parameter = -1;  // where ranks disagree: the other step that a message is of
    std::string text;
};

enum class Work : int { encode = 0, shards = 1, reduce = 2, sums = 3, decode = 4 };
struct WorkSpan {
    Work work;
    int peer;
    double began_s, ended_s;  // of the steady clock
    std::int64_t size_bytes;
};

struct Posting {
    float* values = nullptr;
    float* residual = nullptr;
    std::uint32_t sequence = 0, step = 0;
    float scale = 1.0f;  // of the sum, where it is scatter only
    bool fail = false;   // only say that this rank cannot go on
    std::optional<std::pair<int, int>> trouble;  // (rank, parameter): only say that
};

struct LineReport {
    int peer, rail, index;
    bool up, stalled;
    std::uint64_t sent_bytes, received_bytes, resent_frames, wrong_frames, num_resets;
    double rate_Bps;
};

struct Event {
    double time_s;
    int peer, rail;
    std::string what;
};

class Hub;
class LaneState;
class Mailbox;

// One exchange that is repeated, with everything it needs allocated once.
class Lane {
   public:
    Lane(std::shared_ptr<Hub> hub, LaneSpec spec);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    void post(Posting posting);
    Outcome wait_reduced(double timeout_s);
    Outcome wait_done(double timeout_s);
    // Make the residual what it was before the last post, but for rounding.
    void take_back(const float* values, float* residual);
    std::vector<WorkSpan> spans();
    std::int64_t sent_bytes() const;

   private:
    std::shared_ptr<Hub> hub_;
    std::unique_ptr<LaneState> state_;
};

class Wire {
   public:
    explicit Wire(Options options);
    ~Wire();
    Wire(const Wire&) = delete;
    Wire& operator=(const Wire&) = delete;

    std::vector<std::uint16_t> ports() const;  // where each rail listens
    void connect(int peer, const std::vector<Endpoint>& rails);
    // Wait until every peer is reached on at least one rail; false when that took longer.
    bool wait_connected(double timeout_s);

    // Messages by tag and peer. Memory stays in use until it is waited for, or `finish` returns.
    void open(std::uint32_t tag, int peer, std::uint8_t* room, std::size_t size);
    void send(std::uint32_t tag, int peer, const std::uint8_t* data, std::size_t size, int priority);
    Outcome wait(std::uint32_t tag, int peer, double timeout_s);
    Outcome finish(std::uint32_t tag, double timeout_s);

    std::unique_ptr<Lane> lane(LaneSpec spec);

    std::vector<LineReport> lines() const;
    std::vector<Event> events();
    std::uint64_t num_strangers() const;
    double cpu_s() const;
    // Send what is under way, say goodbye and end the threads.
    void close(double patience_s);
    // End every wait with this text.
    void break_off(const std::string& text);

   private:
    std::shared_ptr<Hub> hub_;
    std::unique_ptr<Mailbox> mailbox_;
};

}  // namespace syncline::wire
