// The engine's inside: one event at a time, everything joined by index. The parts are in files of their own: ports
// (queues, marks, pauses), forward (which way), sender, recovery, receiver, control (congestion), tasks, faults (and samples), setup.
#pragma once

#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "routes.hpp"
#include "state.hpp"

namespace syncline::packet {

// How often it is looked whether ports wait for each other: 1 ms.
constexpr Time kWatch = 1'000'000'000;

class Core {
public:
    explicit Core(const Setup& setup);

    State advance(Time until, i64 max_events);
    // What clocks outside the network show: theirs go on while packets are skipped.
    Time outside() const { return now + skipped_; }

    Time now = 0;
    Counters count;
    Samples samples;
    Captured captured;
    std::vector<i64> begin, end, last_sent, limited;
    std::vector<std::int32_t> cycle;
    Table<Port> ports;
    std::vector<PortTally> tally;
    std::vector<FlowTally> flow_tally;
    Routes routes;

private:
    // setup.cpp
    void take_ports(const Setup& setup);
    void take_flows(const Setup& setup);
    void take_ways(const Setup& setup);
    void foresee_ways();
    void take_tasks(const Setup& setup);

    // engine.cpp
    void happen(u32 what);
    void audit() const;
    // Inlined whatever the compiler thinks: a call of a function that only fetches has no effect in its eyes, and it goes.
    [[gnu::always_inline]] inline void fetch_ahead() const;
    [[gnu::always_inline]] inline void fetch_object(u32 what) const;
    [[gnu::always_inline]] inline void fetch_next(u32 what) const;
    [[gnu::always_inline]] inline void fetch_last(u32 what) const;
    u32 likely_port(const Packet& packet) const;

    void happen_inside();

    // steady.cpp
    void watch_course(const Setup& setup);
    void look(Time until);
    void open_window(Time width);
    Time steady_ps();
    double pace(const Flow& flow) const;
    void skip(Time lasts, Time until);
    void settle();
    void shorten(Flow& flow, u32 packets);
    void extrapolate(double times);

    // Pool
    u32 take_packet();
    void give_packet(u32 packet);
    void lose(u32 packet, i64& why);

    // ports.cpp
    void enqueue(u32 port, u32 packet, u32 from);
    bool admit(u32 port, u32 packet, u32 from);
    bool goes_ahead(u32 port);
    void remove_tail(u32 port, u32 traffic_class);
    void append(u32 port, u32 packet, u32 from);
    void trim(u32 port, u32 packet, u32 from);
    void drop(u32 port, u32 packet, i64& why);
    void mark(u32 port, u32 packet, u32 queue_bytes);
    void service(u32 port);
    void transmit(u32 port, u32 packet, Time start);
    int pick(u32 port, u32 ready);
    u32 unqueue(u32 port, int traffic_class);
    void schedule(u32 port);
    void leave_switch(u32 packet, u32 at_switch);
    double pause_limit(const ClassRule& rule, u32 at_switch) const;
    void release(u32 from, u32 traffic_class, u32 bytes, u32 at_switch);
    void signal(u32 port, u32 traffic_class, Type type, u32 amount);
    void obey(u32 packet);
    bool has_credit(u32 port, u32 traffic_class, u32 bytes) const;
    u32 sendable(u32 port) const;
    Queue& queue(u32 port, u32 traffic_class) { return queues_[std::size_t{traffic_class} * ports.size() + port]; }
    const Queue& queue(u32 port, u32 traffic_class) const { return queues_[std::size_t{traffic_class} * ports.size() + port]; }
    Ingress& ingress(u32 port, u32 traffic_class) { return ingress_[std::size_t{traffic_class} * ports.size() + port]; }
    const Ingress& ingress(u32 port, u32 traffic_class) const {
        return ingress_[std::size_t{traffic_class} * ports.size() + port];
    }
    Time crossing(const Port& port, u32 bytes) const { return static_cast<Time>((u64{bytes} * port.cost) >> 16); }

    // forward.cpp
    void arrive(u32 packet);
    void forward(u32 packet, u32 at_switch);
    u32 choose(u32 packet, u32 at_switch);
    u32 least_loaded(Routes::Set set, u32 start) const;
    u32 detour(const Packet& packet, u32 at_switch, u32 group);
    i64 load(u32 port) const;
    u32 by_hash(u32 label, u32 at_switch, Routes::Set set) const {
        return routes.choices()[set.first + static_cast<u32>((u64{mix(label, salt_[at_switch])} * set.count) >> 32)];
    }
    bool on_way(const Packet& pkt) const {
        return routing_ == Routing::hash && pkt.type == Type::data && pkt.via != kNone;
    }

    // sender.cpp
    void post(u32 task);
    void activate(u32 flow);
    bool has_work(const Flow& flow) const { return flow.num_lost != 0 || flow.next != flow.end; }
    bool may_send(const Flow& flow) const;
    u32 make_data(u32 port, u32 traffic_class);  // kNone: nobody has anything left to send
    u32 payload_of(const Flow& flow, u32 seq) const;
    u32 end_of(u32 task, const Profile& profile) const;
    void send_next(Flow& flow, u32 task);
    void receive_next(Flow& flow, u32 task);
    void label(Flow& flow, Packet& packet, const Profile& profile);
    u32 next_path(Flow& flow);
    u32 num_paths(const Flow& flow) const;
    void join_ring(u32 flow, u32 traffic_class);
    Time slot_start(const Flow& flow, const Profile& profile, Time wire) const;

    // recovery.cpp
    void arm(u32 flow);
    void arm_probe(u32 flow);
    void probe(u32 flow);
    bool held(const Flow& flow) const;
    void time_out(u32 flow);
    void measure_rtt(Flow& flow, Time sent);
    Time timeout_of(const Flow& flow, const Profile& profile) const;
    Time way_and_back(const Flow& flow, const Profile& profile) const;
    void note_repeat(Flow& flow, u32 seq);
    void forget_repeat(Flow& flow, u32 seq);
    void cut(Flow& flow, const Profile& profile, bool timeout);
    void start_pulls_anew(Flow& flow, const Profile& profile);
    void acknowledged(u32 packet);
    u32 score(Flow& flow, const Packet& packet);
    bool take_lost(Flow& flow, u32 seq);
    u32 next_lost(Flow& flow);
    void find_lost(Flow& flow, const Profile& profile);
    void declare_lost(Flow& flow, const Profile& profile, u32 stop);
    void go_back(Flow& flow);

    // receiver.cpp
    void receive(u32 packet);
    void receive_data(u32 packet);
    void deliver(u32 flow);
    void reply(u32 flow, const Packet& data, Type type, u32 data_packet);
    void owe_pull(u32 flow);
    void pull(u32 endpoint);

    // control.cpp
    void start_control(Flow& flow, const Profile& profile);
    void on_ack(u32 flow, const Packet& packet, u32 newly, u32 packet_index);
    void on_loss(Flow& flow, const Profile& profile, bool timeout);
    void on_notice(Flow& flow, const Profile& profile);
    bool window_is_used(const Flow& flow, const Profile& profile, u32 newly) const;
    void before_send(Flow& flow, const Profile& profile, u32 wire);
    void dctcp(Flow& flow, const Profile& profile, const Packet& ack, u32 newly);
    void swift(Flow& flow, const Profile& profile, const Packet& ack, u32 newly);
    void sprayed(Flow& flow, const Profile& profile, const Packet& ack, u32 newly);
    void hpcc(u32 flow, const Profile& profile, const Packet& ack, u32 packet);
    void timely(Flow& flow, const Profile& profile, const Packet& ack);
    void cubic(Flow& flow, const Profile& profile, const Packet& ack, u32 newly);
    void increase_rate(Flow& flow, const Profile& profile);
    void catch_up(Flow& flow, const Profile& profile);
    void tick_until(Flow& flow, const Profile& profile, Time until);
    void cut_rate(Flow& flow, const Profile& profile);
    void consult(u32 flow, const Profile& profile, int what, const Packet* ack, u32 newly);
    void capture(u32 port, const Packet& packet, Time start);
    void limit(Flow& flow, const Profile& profile) const;
    double line_rate(const Flow& flow) const { return 65536.0 / ports[flow.port].cost; }

    // tasks.cpp
    void start_ready();
    void begin_task(u32 task);
    void run_task(u32 task);
    void finish_task(u32 task);
    void segment(u32 slot);

    // faults.cpp
    void change(u32 row);
    void reroute();
    void find_routes();
    void leave_dead_ways();
    void watch();
    bool find_cycle();

    void sample();

    Calendar calendar_;
    std::priority_queue<HostEvent, std::vector<HostEvent>, std::greater<>> hosts_;
    Time skipped_ = 0;
    Steady steady_;
    Random random_;
    Table<Packet> packets_;
    u32 free_packet_ = kNone;
    i64 num_packets_ = 0;
    std::size_t table_bytes_ = 0;  // of ports, queues and connections
    bool spread_out_ = false;      // so much memory that it is worth fetching ahead
    bool looks_up_ = false;        // some connection's way is looked up, or its recovery selective
    std::vector<Telemetry> telemetry_;  // of each packet, when some connection measures
    std::vector<Telemetry> seen_;       // what each connection saw last

    u32 num_classes_ = 1;
    std::vector<ClassRule> classes_;
    u32 weighted_ = 0;  // classes with a weight
    std::vector<Profile> profiles_;
    Table<Queue> queues_;      // class by class: most ports use one of them only
    Table<Ingress> ingress_;
    std::vector<std::int32_t> deficit_;  // of the queues, where classes have weights
    std::vector<u32> back_;
    std::vector<Time> signalled_;  // when the last signal to the sending end of each port arrives
    std::vector<double> loss_;
    std::vector<u32> full_cost_;
    std::vector<Wire> wires_;
    std::vector<i64> buffer_bytes_, buffer_used_;
    std::vector<u32> salt_, start_;  // of the switches
    std::vector<u32> turn_;          // of the sets of ports, where loads choose
    std::vector<std::int32_t> region_;
    std::vector<std::vector<u32>> groups_in_;  // destination groups by the region of their home, -1 first
    u32 drawn_ = 0;  // detours drawn so far
    std::vector<Endpoint> endpoints_;
    std::vector<Place> places_;  // of the endpoints
    Routing routing_ = Routing::hash;
    bool cut_through_ = false;
    bool credits_ = false;
    i64 credit_bytes_ = 0;
    i64 headroom_ = 0;
    double ugal_bias_ = 0;
    u64 seed_ = 0;

    Table<Flow> flows_;
    Table<Scores> scores_;
    std::vector<u32> ways_;  // ports of the connections' ways, one row after the other, each ended by kNone

    // Tasks
    std::vector<std::int32_t> task_over_;
    std::vector<i64> task_bytes_, task_delay_, task_start_;
    std::vector<u32> task_waits_, task_next_, task_first_;  // waits left; next on the connection; first packet
    std::vector<u64> after_start_;
    std::vector<u32> after_;
    std::vector<u32> ready_;  // work list of tasks that may begin
    std::vector<double> bus_cost_;
    std::vector<Time> bus_busy_;
    std::vector<i64> path_start_;
    std::vector<std::int32_t> path_bus_;
    struct Move {
        u32 task;
        u32 hop;  // of its path, for the piece under way
        i64 left, step;
        Time free, last;  // when the piece has left the first link, and the message the last
    };
    std::vector<Move> moves_;
    u32 free_move_ = kNone;

    // Changes, samples, watching
    std::vector<i64> change_reroute_;
    std::vector<std::int32_t> change_port_;
    std::vector<double> change_factor_;
    Time sample_ps_ = 0;
    std::vector<std::int32_t> sample_port_, sample_flow_;
    i64 capture_most_ = 0;
    std::vector<Memory> memories_;  // of connections under a law of the user's
    i64 seen_progress_ = -1, idle_watches_ = 0;
    State state_ = State::running;
};

}  // namespace syncline::packet
