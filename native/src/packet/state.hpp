// What the engine keeps: packets in a pool, ports, queues, connections. Plain data, joined by index.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "calendar.hpp"
#include "pages.hpp"
#include "syncline/packet.hpp"

namespace syncline::packet {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i64 = std::int64_t;

inline constexpr u32 kNone = 0xFFFFFFFFu;
inline constexpr int kMaxClasses = 8;
inline constexpr double kNoWindow = 1e17;

// An event is a kind and an index in 32 bits.
enum class Happens : u32 { arrival, service, pace, timeout, pull, task, bus, misc };
inline constexpr int kKindShift = 29;
inline constexpr u32 kIndexMask = (1u << kKindShift) - 1;
// Timeouts: this bit in the index says that it is the tail probe's.
inline constexpr u32 kProbe = 1u << (kKindShift - 1);
inline u32 event(Happens kind, u32 index) { return (static_cast<u32>(kind) << kKindShift) | index; }

enum class Type : u8 { data, ack, nack, pull, notice, pause, resume, credit };

// kSprayed: the label is the number of a path, of which each switch takes its digit.
enum Flag : u8 { kMarked = 1, kTrimmed = 2, kSprayed = 4, kMeasured = 8, kAgain = 16, kAsks = 32 };

// One cache line. `next` links it in a queue or in the pool's free list; of a packet under way, which is an event, it says
// where that arrives: a switch, or kToEndpoint.
inline constexpr u32 kToEndpoint = kNone;
struct alignas(64) Packet {
    u32 next;
    u32 port;  // the port it left through, so the link it travels on
    u32 flow;
    u32 seq;
    u32 wire_bytes;
    u32 payload_bytes;
    u32 dst;
    u32 label;   // what ECMP hashes
    Time sent;   // by the source; acknowledgements carry it back
    u64 bits;    // acknowledgements: which packets of the block of 64 around `seq` have arrived
    u32 ack;     // acknowledgements: everything before this has arrived
    u32 from;    // the port it entered this switch through, while it is buffered
    u32 via;     // destination group to visit first (Valiant), where its ports begin (by hash), or none
    Type type;
    u8 traffic_class;
    u8 flags;
    u8 hops;
};
static_assert(sizeof(Packet) == 64);

enum Special : u8 { kLossy = 1, kCaptured = 2 };

// One cache line as well: what every packet that passes reads or counts.
struct alignas(64) Port {
    Time busy_until;
    Time latency;
    u64 wire_bytes;
    u64 packets;
    u32 cost;  // ps a byte, in 1/65536
    u32 queued_bytes;
    u32 peak_bytes;
    u32 to;           // switch or endpoint
    u32 owner;        // the switch whose buffer it uses; kNone: it belongs to an endpoint
    u8 waiting;       // classes with something to send
    u8 paused;        // classes that must not send
    bool scheduled;   // a service event is pending
    bool to_endpoint;
    bool up;
    u8 special;       // kLossy, kCaptured
    u8 turn;          // weighted class whose turn it is
    u8 ahead;         // packets of class 0 in a row, where they have a weight
};
static_assert(sizeof(Port) == 64);

struct Queue {
    u32 head = kNone, tail = kNone;
    u32 bytes = 0;
    u32 ring_tail = kNone;  // flows ready to send, a ring (ports of endpoints)
};
static_assert(sizeof(Queue) == 16);

// What came in through a port and is still in the switch behind it, by class.
struct Ingress {
    i64 credit = 0;  // what the port may still send
    u32 bytes = 0;   // with credits: freed, but not told yet
    bool pausing = false;
};
static_assert(sizeof(Ingress) == 16);

// What befell the data packets of a connection.
struct FlowTally {
    u32 marks = 0, drops = 0, trims = 0, lost = 0, resent = 0;
};

struct PortTally {
    i64 drops = 0, marks = 0, trims = 0, pauses = 0;
    Time paused = 0, paused_since = 0;
    i64 skipped_bytes = 0, skipped_packets = 0;  // on the wire while a steady course was skipped
};

// What comes to pass inside hosts: by their clock, which goes on while packets are skipped.
struct HostEvent {
    Time at;
    u32 what;
    bool operator>(const HostEvent& other) const { return at != other.at ? at > other.at : what > other.what; }
};

// Two windows in which every connection under way moved as much, after which the same course need not be run again.
struct Steady {
    Time look_at = std::numeric_limits<Time>::max();  // the end of the window; never: nothing is skipped
    Time least = 0, width = 0;   // of a window
    Time began = 0, first_ps = 0;  // this one; and how long the one before took (0: there is none)
    bool upset = true;           // a message began or ended since
    bool skipping = false;
    Time from = 0;               // what had been skipped before
    std::vector<i64> delivered, first;  // by connection: at the start of this window, and in the one before
    std::vector<u32> moving;     // connections under way
    std::vector<double> rate;    // theirs, bytes per ps
    std::vector<double> paced;   // what their congestion control allowed at the start of this window
    // As things were when the one before began.
    Time since = 0;
    Counters count;
    std::vector<PortTally> tally;
    std::vector<u64> wire_bytes, packets;
    std::vector<FlowTally> flow_tally;
    std::vector<Time> limited;
};

struct Telemetry {
    struct Hop {
        Time at;
        u64 wire_bytes;
        u32 queue_bytes;
        u32 port;
    };
    u32 count = 0;
    Hop hop[8];
};

// A window of bits that moves up with the sequence numbers and grows when it must.
class Bits {
public:
    bool test(u32 seq) const { return in(seq) && (word(seq >> 6) >> (seq & 63) & 1) != 0; }
    void set(u32 seq) {
        while (!in(seq)) grow();
        word(seq >> 6) |= u64{1} << (seq & 63);
    }
    void clear(u32 seq) {
        if (in(seq)) word(seq >> 6) &= ~(u64{1} << (seq & 63));
    }
    u64 block(u32 seq) const { return in(seq) ? word(seq >> 6) : 0; }
    // Everything before `seq` is forgotten.
    void forget(u32 seq) {
        const u32 target = seq >> 6;
        if (target - base_ > mask_) {
            for (u32 i = 0; i <= mask_; ++i) word(i) = 0;
        } else {
            for (; base_ != target; ++base_) word(base_) = 0;
        }
        base_ = target;
    }

private:
    bool in(u32 seq) const { return (seq >> 6) - base_ <= mask_; }
    void grow() {
        const u32 wider_mask = 2 * mask_ + 1;
        auto wider = std::make_unique<u64[]>(wider_mask + 1);
        for (u32 i = 0; i <= mask_; ++i) wider[(base_ + i) & wider_mask] = word(base_ + i);
        more_ = std::move(wider);
        mask_ = wider_mask;
    }
    u64& word(u32 number) { return mask_ == kFew - 1 ? few_[number & (kFew - 1)] : more_[number & mask_]; }
    u64 word(u32 number) const { return mask_ == kFew - 1 ? few_[number & (kFew - 1)] : more_[number & mask_]; }

    static constexpr u32 kFew = 4;
    u32 base_ = 0;
    u32 mask_ = kFew - 1;
    u64 few_[kFew] = {};  // most windows never grow
    std::unique_ptr<u64[]> more_;
};

// Packets sent again, in the order of sending, that have not yet been overtaken.
struct Repeats {
    struct Row {
        u32 seq;
        Time at;
    };
    std::vector<Row> rows;
    std::size_t head = 0;
};

// What selective recovery remembers of a connection.
struct alignas(64) Scores {
    Bits arrived;  // the receiver's
    Time rack = -1;  // when the packet was sent that was sent last of all that have arrived
    u32 recover = 0;  // losses are being repaired until this is acknowledged
    u32 unused = 0;
    Bits acked;  // the sender's, from here on
    Time cut_at = -1;  // when the window was last cut
    std::unique_ptr<Repeats> repeats;
    Bits lost;
    Time probe_at = 0;
    Time last_fresh = 0;  // when a packet was last sent for the first time
};

enum class Standing : u8 { idle, ready, paced, blocked };

// In cache lines: what sending a packet needs, what its pace needs, what receiving needs, and the rest.
struct alignas(64) Flow {
    // Sender: packet numbers run on over all messages of the connection
    u32 port, src, dst, label;
    u8 profile;
    Standing standing;
    u8 backoff;
    bool timer_armed;
    u32 ring_next;
    u32 una, next, end;
    u32 flying;    // packets sent and neither acknowledged nor taken for lost
    u32 num_lost;  // to be sent again
    u32 sent_end;  // highest sent + 1
    u32 send_task, send_end;  // the message of `next`, and the packet after its last
    std::int32_t credit;      // receiver-driven: packets it may send
    u32 scores;

    Time next_send, last_send, deadline;
    double window, rate;  // bytes; bytes per ps
    double cap;
    u32 una_task, last_task;
    u32 highest;    // highest acknowledged + 1
    u32 lost_scan;  // up to here holes have been taken for lost once

    // Receiver
    u32 rcv_next, rcv_task, rcv_end;  // as send_task, send_end
    u32 unacked, marked;
    u32 rcv_last, rcv_port;  // what arrived last, on which port, and when that was sent
    u32 slot;
    Time rcv_sent;
    Time last_notice;
    i64 delivered;
    bool refused;  // a gap was reported
    bool in_pull_ring;
    bool probed;       // a tail probe is out, and nothing has been heard since
    bool probe_armed;
    u32 way;  // sender: where its ports begin in the table of ways; kNone: by hash

    // Congestion control
    double alpha, target, x, y;
    Time t0, t1, t2;
    u32 mark_seq, count_a, count_b, count_c;
    u32 recycle;
    u32 paths, paths_used;  // sprayed: how many there are (0: not counted yet), and how many packets have taken one
    u32 lost_hint;
    u32 pulls_owed, pulls_given, pull_next;
    u32 cut_seq;            // the window was last cut when this was the next new packet
    float rtt, rtt_spread;  // RFC 6298, ps; 0: not measured yet
    Time limited, limited_since, limited_told;  // how long its rate or window held it back; when that began; already told of
};

// What a law of the user's keeps of a connection.
struct Memory {
    double number[16] = {};
};

struct Endpoint {
    u32 pull_tail = kNone;  // ring of flows that are owed pulls
    Time pull_next = 0;
    Time pull_gap = 0;
    bool pulling = false;
};

// Where an endpoint is, for those who send to it.
struct Place {
    u32 group = 0;
    u32 down_port = kNone;  // the only port that leads to it; kNone: several
};

class Random {
public:
    explicit Random(u64 seed) : state_(seed * 0x9E3779B97F4A7C15ull + 0xD1B54A32D192ED03ull) {}
    u32 next() {
        state_ += 0x9E3779B97F4A7C15ull;
        u64 x = state_;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        return static_cast<u32>((x ^ (x >> 31)) >> 32);
    }
    double unit() { return next() * (1.0 / 4294967296.0); }

private:
    u64 state_;
};

inline u32 num_packets(i64 bytes, int payload) { return static_cast<u32>((bytes + payload - 1) / payload); }

inline u32 mix(u32 a, u32 b) {
    u64 x = (u64{a} << 32 | b) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ull;
    return static_cast<u32>(x >> 32);
}

}  // namespace syncline::packet
