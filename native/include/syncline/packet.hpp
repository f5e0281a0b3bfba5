// Packet-level simulation: messages that wait for each other, cut into packets that queue in ports. Times are whole
// picoseconds, so that sums are exact and the course of a run depends on its input and seed only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace syncline::packet {

enum class Transport : std::uint8_t { line, dcqcn, dctcp, swift, hpcc, timely, cubic, pull, spray, slotted, custom };
enum class Recovery : std::uint8_t { go_back_n, selective };
enum class Spread : std::uint8_t { flow, flowlet, packet, recycle };
enum class Routing : std::uint8_t { hash, first, adaptive, valiant, ugal };

// How a group of connections sends. Rates in bytes per second, times in picoseconds, sizes in bytes.
struct Profile {
    int transport = 0;
    int recovery = 0;
    int spread = 0;
    int data_class = 1;
    int ack_class = 0;
    int payload_bytes = 4096;
    int header_bytes = 66;
    int ack_bytes = 64;
    int ack_every = 1;
    int duplicate_threshold = 3;  // selective: a packet with so many later ones acknowledged is taken for lost
    double window_bytes = 1e18;   // at the start; 1e18: none
    double min_window_bytes = 4096;
    double max_window_bytes = 1e18;
    double start_Bps = 0;  // 0: the rate of the port
    double min_Bps = 1e7;
    bool window_follows_rate = false;  // the window shrinks with the rate: window_bytes x rate / line rate
    // Recovery. The timer is RFC 6298's, never shorter than `timeout_ps` nor than two round trips without queues.
    std::int64_t timeout_ps = 1'000'000'000;
    std::int64_t timeout_low_ps = 0;  // instead, while no more than `few_packets` are out (IRN); 0: the same
    int few_packets = 3;
    bool tail_probe = false;          // selective: RFC 8985's probe after two round trips without news
    bool finds_lost_repeats = true;   // selective: a repeat is lost when something sent later has arrived (RFC 8985)
    std::int64_t reorder_ps = 0;      // so much later; 0: a quarter of the base round trip
    std::int64_t flowlet_gap_ps = 50'000'000;
    std::int64_t base_rtt_ps = 10'000'000;
    // DCQCN
    double gain = 1.0 / 256;  // also DCTCP's
    std::int64_t alpha_timer_ps = 55'000'000;
    std::int64_t rate_timer_ps = 55'000'000;
    std::int64_t cnp_interval_ps = 50'000'000;  // 0: every acknowledgement tells of its marks instead
    std::int64_t decrease_interval_ps = 4'000'000;
    double byte_counter = 10e6;
    int fast_stages = 5;
    bool clamps_target = true;  // a cut sets the target to the rate before it, also where the rate has not risen since
    bool cuts_on_timer = false;  // cuts happen at ticks of the decrease timer, as in the ns-3 model of HPCC's authors
    double additive_Bps = 5e6;
    double hyper_Bps = 50e6;
    // Swift and spraying: the delay to aim at
    std::int64_t target_ps = 25'000'000;
    std::int64_t hop_ps = 0;
    double additive_packets = 1.0;
    double decrease = 0.8;       // Swift's beta, TIMELY's beta, CUBIC's beta
    double max_decrease = 0.5;   // Swift's largest cut
    double flow_scale_ps = 0;    // Swift: range of flow scaling
    double flow_scale_min = 0.1;
    double flow_scale_max = 100;
    // HPCC
    double target_utilisation = 0.95;
    int max_stage = 5;
    double additive_bytes = 0;
    // TIMELY
    std::int64_t low_ps = 50'000'000;
    std::int64_t high_ps = 500'000'000;
    double smoothing = 0.875;
    double timely_Bps = 10e6 / 8;
    // CUBIC
    double cubic_c = 0.4;
    // Time slots
    std::int64_t slot_ps = 0;
    std::int64_t guard_ps = 0;
    int num_slots = 1;
    // A law of the user's (packet_law.h), by the address of its function.
    std::uint64_t law = 0;
};

// What ports do with one traffic class. Class 0 goes before all others, in switches so often in a row as its weight says.
struct ClassRule {
    bool lossless = false;
    bool trims = false;         // what does not fit loses its payload and goes on as a header in class 0
    double trim_tail = 0;       // chance that the packet at the end of the queue is trimmed instead of the one that arrives
    std::int64_t limit_bytes = 0;  // static limit of a queue; 0: dynamic (alpha of the free buffer)
    double alpha = 1.0;
    std::int64_t mark_low_bytes = 0;  // ECN; low = high: a step; 0: no marks
    std::int64_t mark_high_bytes = 0;
    double mark_probability = 1.0;
    int weight = 0;             // 0: strict priority by class number; otherwise its weight among the weighted; class 0: in a row
    std::int64_t pause_bytes = 0;  // lossless: ingress bytes that pause the sender; 0: dynamic (pause_alpha)
    double pause_alpha = 0.125;
    std::int64_t resume_gap_bytes = 8192;  // it goes on when so far below
};

struct Setup {
    // Ports are directed links. Ends: a switch s is s, an endpoint e is -1 - e.
    std::span<const std::int32_t> port_src;
    std::span<const std::int32_t> port_dst;
    std::span<const double> port_Bps;
    std::span<const std::int64_t> port_latency_ps;
    std::span<const std::uint8_t> port_hops;   // what crossing it costs a route
    std::span<const double> port_loss;         // chance that a packet is destroyed
    std::span<const std::int32_t> port_back;   // the other direction of the cable
    std::span<const double> switch_buffer_bytes;
    std::span<const std::int32_t> switch_region;  // group of a dragonfly; for Valiant
    std::int32_t num_endpoints = 0;

    std::vector<Profile> profiles;
    std::vector<ClassRule> classes;
    int routing = 0;
    bool cut_through = false;
    bool credits = false;  // credit-based flow control instead of pauses
    double credit_bytes = 0;
    double ugal_bias = 0;
    std::uint64_t seed = 0;
    std::int64_t headroom_bytes = 0;  // of a switch's buffer, kept for lossless packets under way

    // Connections, each from one port of an endpoint.
    std::span<const std::int32_t> flow_port;
    std::span<const std::int32_t> flow_dst;
    std::span<const std::uint8_t> flow_profile;
    std::span<const std::int32_t> flow_slot;
    std::span<const std::uint32_t> flow_label;  // what ECMP hashes
    std::span<const double> flow_cap_Bps;       // 0: none
    // The ports each connection takes after its own while routing is by hash, in rows. A row may be empty, or no longer
    // lead there after a failure: then switches hash its label.
    std::span<const std::int64_t> flow_way_start;
    std::span<const std::int32_t> flow_way_port;

    // Paths inside hosts: rows of bus links.
    std::span<const double> bus_Bps;
    std::span<const std::int64_t> path_start;
    std::span<const std::int32_t> path_bus;

    // Tasks: wait for others and for a time, then for a delay, then move bytes over a flow (>= 0), a path
    // (-2 - path), or nothing (-1).
    std::span<const std::int32_t> task_over;
    std::span<const std::int64_t> task_bytes;
    std::span<const std::int64_t> task_delay_ps;
    std::span<const std::int64_t> task_start_ps;
    std::span<const std::int64_t> wait_start;
    std::span<const std::int32_t> wait_for;

    // Changes of ports: a factor of the rate from a moment on; 0: down. Routes follow `reroute_ps` later (-1: never).
    std::span<const std::int64_t> change_ps;
    std::span<const std::int32_t> change_port;
    std::span<const double> change_factor;
    std::span<const std::int64_t> change_reroute_ps;

    std::int64_t sample_ps = 0;  // 0: no samples
    std::span<const std::int32_t> sample_port;
    std::span<const std::int32_t> sample_flow;
    std::span<const std::int32_t> capture_port;  // every packet that these send is written down
    std::int64_t capture_most = 1'000'000;

    // Where every connection under way goes on at its rate, that is not run: messages are shortened by what they would
    // have sent, and all clocks outside the network put forward. Not with changes, samples, captures or time slots.
    bool skips_steady = false;
};

enum class State : int { running, finished, deadlock, stalled };

// Every counter is a whole number; bytes are payload unless they say wire.
struct Counters {
    std::int64_t events = 0;
    std::int64_t data_packets = 0;  // new ones, not sent again
    std::int64_t resent_packets = 0;
    std::int64_t control_packets = 0;
    std::int64_t hops = 0;
    std::int64_t marks = 0;
    std::int64_t trims = 0;
    std::int64_t drops = 0;
    std::int64_t lossless_drops = 0;  // a lossless class lost a packet for want of buffer: the headroom is too small
    std::int64_t errors = 0;          // destroyed on a link
    std::int64_t dead = 0;            // sent into a failed link, or without a route
    std::int64_t pauses = 0;
    std::int64_t timeouts = 0;
    std::int64_t probes = 0;          // of tails (RFC 8985)
    std::int64_t notices = 0;         // congestion notifications
    std::int64_t sent_bytes = 0;
    std::int64_t delivered_bytes = 0;
    std::int64_t lost_bytes = 0;      // dropped, trimmed, destroyed
    std::int64_t discarded_bytes = 0; // arrived, but twice or out of order where that is not kept
    std::int64_t flying_bytes = 0;    // now in ports and on links
    std::int64_t total_bytes = 0;     // of all tasks that use the network
    std::int64_t tasks_done = 0;
    std::int64_t peak_packets = 0;    // most packets in flight at once
    std::int64_t skipped_packets = 0; // of the new ones, those counted as the course before them went
};

struct PortColumns {
    std::vector<std::int64_t> wire_bytes, packets, drops, marks, trims, pauses, paused_ps, peak_bytes;
    std::vector<std::int64_t> booked_ps;  // what is counted as sent leaves until so long from now
};

// Data packets by connection; `lost` are those dropped, destroyed on a link or sent into a dead one.
struct FlowColumns {
    std::vector<std::int64_t> marks, drops, trims, lost, resent;
};

struct Samples {
    std::vector<std::int64_t> time_ps;                                            // one a row
    std::vector<std::int64_t> queue_bytes, wire_bytes, marks, paused;             // rows x ports
    std::vector<double> flow_Bps, flow_window_bytes;                              // rows x flows
    std::vector<std::int64_t> flow_bytes;                                         // delivered
};

// What captured ports sent, one row a packet. `kind` 0 data, 1 acknowledgement, 2 negative, 3 pull, 4 notification.
struct Captured {
    std::vector<std::int64_t> time_ps;
    std::vector<std::int32_t> port, flow;
    std::vector<std::uint32_t> seq, ack, wire_bytes, payload_bytes;
    std::vector<std::uint8_t> kind, flags, traffic_class;
};

class Core;

class Engine {
public:
    // Copies what it needs; throws std::invalid_argument, naming the row that breaks a rule.
    explicit Engine(const Setup& setup);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Works off events up to `until_ps`, at most so many, and says how things stand. Throws std::logic_error when
    // bytes are not accounted for or a queue is impossible.
    State advance(std::int64_t until_ps, std::int64_t max_events);
    std::int64_t now_ps() const;
    const Counters& counters() const;
    std::span<const std::int64_t> begin_ps() const;  // of every task; -1: not yet
    std::span<const std::int64_t> end_ps() const;
    std::span<const std::int64_t> last_sent_ps() const;  // when the packet that completed each message was sent
    std::span<const std::int64_t> limited_ps() const;    // how long its connection's rate or window held it back
    PortColumns ports() const;
    FlowColumns flows() const;
    const Samples& samples() const;
    const Captured& captured() const;
    std::vector<std::int32_t> cycle() const;  // ports that wait for each other, after a deadlock
    // The ports a packet may take from a switch towards an endpoint.
    std::vector<std::int32_t> next_ports(std::int32_t from_switch, std::int32_t endpoint) const;

private:
    std::unique_ptr<Core> core_;
};

}  // namespace syncline::packet
