// What the threads of a wire share, under one lock: peers, messages under way, lines, tasks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "frame.hpp"
#include "pace.hpp"
#include "syncline/wire.hpp"

namespace syncline::wire {

double now_s();  // of the steady clock

struct Part {
    std::uint8_t* data = nullptr;
    std::size_t size = 0;
};

// Copy a stretch of a message, [offset, offset + size) of its parts laid end to end, from `from`.
void put(const Part (&parts)[2], std::uint32_t offset, const std::uint8_t* from, std::size_t size);

// Memory for what comes and is soon used up. What was given back last is taken first: it is still in the cache.
class Rooms {
   public:
    using Room = std::unique_ptr<std::uint8_t[]>;
    // So many more (or fewer) of this size may be in use at once, and are kept.
    void expect(std::size_t size, int count);
    Room take(std::size_t size);
    void give(Room room, std::size_t size);
    std::size_t num_free() const;

   private:
    struct Free {
        std::vector<Room> rooms;
        int expected = 0;
    };
    void trim(std::size_t size);
    std::map<std::size_t, Free> free_;
};

// Who sends and receives messages. Every call is made with the hub's lock held.
class Listener {
   public:
    virtual ~Listener() = default;
    // Where the payload of a message goes; asked once, when its first bytes are there.
    virtual Part place(std::uint32_t key, int peer, std::uint32_t total) = 0;
    virtual void arrived(std::uint32_t key, int peer, std::uint32_t total) = 0;
    virtual void sent(std::uint32_t key, int peer) = 0;
};

// The checksums of a message's frames; null: they are taken when it is sent.
using FrameSums = std::shared_ptr<const std::vector<std::uint32_t>>;

struct OutMessage {
    int peer;
    std::uint32_t tag, number, key;
    int priority;
    Listener* listener;
    Part part[2];
    FrameSums sums;
    std::uint32_t total = 0;
    std::uint32_t num_unacknowledged = 0;
    std::uint32_t num_being_written = 0;
    bool is_over = false;
};
using OutPointer = std::shared_ptr<OutMessage>;

struct InMessage {
    Listener* listener = nullptr;  // null: nobody has asked for it yet, and it is kept in `parked`
    std::uint32_t key = 0;
    Part part[2];
    bool is_placed = false;
    bool is_refused = false;  // longer than the room; kept in `parked`, and told once
    bool is_told = false;
    std::uint32_t total = 0, received = 0, num_committing = 0;
    std::vector<std::uint8_t> parked;
};

struct OutFrame {
    OutPointer message;
    std::uint32_t offset, length;
    int line = -1;  // -1: waits to be sent
    double sent_s = 0.0;
    bool was_sent = false;
};

// A place for one connection to one peer, on one rail; the connection may come and go.
struct Line {
    int peer = 0, rail = 0, index = 0, id = 0;
    int worker = 0, reader = 0;  // the threads that write and read it
    bool is_up = false, is_stalled = false, was_up = false;
    std::uint64_t epoch = 0;
    double last_heard_s = 0.0, stalled_s = 0.0, next_dial_s = 0.0, last_ping_s = 0.0;
    int num_dials = 0;
    bool is_dialing = false, must_close = false, ping = false, pong = false, bye = false;
    std::vector<std::uint64_t> acks, agains;
    std::size_t in_flight = 0;
    Pace pace;
    double least_delay_s = 0.0;
    std::uint64_t sent_bytes = 0, received_bytes = 0, resent = 0, wrong = 0, num_resets = 0;
    std::atomic<bool> is_dirty{false}, must_let_go{false};
};

// A frame that a connection reads straight into its place. Whoever has the same frame sooner, or needs the place,
// takes it away.
struct Claim {
    std::mutex mutex;         // held while the place is touched; taken after the hub's
    bool is_revoked = false;  // under `mutex`
    bool is_held = false;     // this and the rest under the hub's lock
    InMessage* message = nullptr;
    int peer = 0;
    std::uint64_t sequence = 0;
    Part to[2];
};

struct Peer {
    int rank = 0;
    std::vector<Endpoint> endpoints;
    std::vector<int> lines;
    std::uint64_t next_sequence = 1, floor = 1;
    std::unordered_set<std::uint64_t> beyond;
    std::unordered_map<std::uint64_t, Claim*> receiving;  // by sequence
    std::unordered_map<std::uint64_t, OutFrame> flight;
    using Ready = std::tuple<int, std::uint64_t>;  // -priority, sequence
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    std::uint64_t waiting_bytes = 0;  // of frames that no line has
    std::unordered_map<std::uint32_t, std::uint32_t> in_number, out_number;
    std::map<std::pair<std::uint32_t, std::uint32_t>, InMessage> inbox;
    std::string lost;  // why nothing can be had from it any more; "" while it can
    bool said_bye = false;
    std::uint64_t gone = 0;  // bytes that lines have taken, or as many as the others' when it had nothing to send
    bool is_held = false;    // it had to wait for the others
};

// A frame on its way into the kernel, with the bytes of a control frame or the message it is a part of.
struct Going {
    FrameHeader header{};
    std::vector<std::uint64_t> words;
    OutPointer message;
    Part part[2];
    bool is_summed = false;  // the header has the payload's checksum
};

enum class Arrival { right, wrong, broken_off };

class Worker;
class LaneState;

class Hub : public std::enable_shared_from_this<Hub> {
   public:
    explicit Hub(Options chosen);
    ~Hub();
    void stop();

    const Options options;
    mutable std::mutex mutex;
    std::condition_variable changed;
    std::vector<Peer> peers;
    std::vector<std::unique_ptr<Line>> lines;  // all that there will be, made at the start
    std::vector<Event> events;
    std::unordered_map<std::uint32_t, LaneState*> lanes;  // who has a tag
    Rooms rooms;
    std::uint64_t num_strangers = 0;
    std::string broken;  // why every wait must end; "" while none must
    std::atomic<bool> is_stopping{false};
    std::atomic<bool> is_stopped{false};
    bool is_closing = false;

    // Messages, with the lock held.
    void open(int peer, std::uint32_t tag, Listener* listener, std::uint32_t key, Part prefix);
    // Give back what `open` asked for: bytes that came already are kept for the next to ask. False while some are
    // being brought.
    bool unopen(int peer, std::uint32_t tag, Listener* listener);
    // Give back a message that was delivered and is for whoever asks next.
    void put_back(int peer, std::uint32_t tag, const Part (&parts)[2], std::uint32_t total);
    // `priority` is twice that of a lane: halves tell messages of one lane apart.
    OutPointer send(int peer, std::uint32_t tag, int priority, Listener* listener, std::uint32_t key, Part prefix,
                    Part payload, FrameSums sums = nullptr);
    // Take a message as received: its receiver has answered.
    void release(const OutPointer& message);
    void forget(const OutPointer& message);
    // What ends a wait for this peer; fine while nothing does.
    Outcome trouble_with(int peer) const;
    bool is_quiet() const;
    // Have everybody who waits look again: somebody is lost, or all is over.
    void wake_waiting();

    // Make the lane that has a tag hand it over; the lock is let go while that lane is busy.
    void evict(std::unique_lock<std::mutex>& hold, std::uint32_t lane_tag);

    // Tasks, with the lock held.
    // What others wait for goes before what is made ahead, which waits until little is left to send: bytes that are made
    // just before they go are still in the cache.
    enum class Kind { due, ahead };
    void add_task(int priority, Kind kind, std::function<void()> run);

    // Frames, called by workers without the lock.
    bool next_going(Line& line, std::uint64_t epoch, std::vector<Going>& out, std::size_t limit_bytes);
    void written(Line& line, Going& going);
    void unwritten(std::vector<Going>& goings, std::size_t from);
    // Whether a frame is this line's to bring; false when it has come, or goes over another.
    bool is_on(const Line& line, std::uint64_t sequence);
    // Claim the place of a frame that begins; it may be refused to a frame that is known or comes twice. False when the
    // frame lies outside its message.
    bool begin_frame(Line& line, const FrameHeader& header, Claim& claim);
    // Take a frame whose bytes are in their place, or, where that was not claimed, in `scratch`. Whether something is to
    // be written back now: on a peer's only line several frames of a message are acknowledged at once.
    bool end_frame(Line& line, const FrameHeader& header, Claim& claim, Arrival arrival, const std::uint8_t* scratch);
    void drop(Claim& claim);
    // Have a line's writer look at it.
    void touch(Line& line, int from_worker);
    void acknowledged(Line& line, const std::vector<std::uint64_t>& sequences);
    void resend(Line& line, std::uint64_t sequence);
    void heard(Line& line);
    void said_bye(Line& line);

    // Lines, with the lock held.
    void came_up(Line& line);
    void went_down(Line& line, const std::string& why);
    void lose(int peer, const std::string& why);
    void tick(double now);
    void tell(int peer, int rail, std::string what);
    int line_at(int peer, int rail, int index) const;

    std::function<void()> pop_task();
    bool has_tasks();

    std::vector<std::unique_ptr<Worker>> workers;

   private:
    bool can_send(const Peer& peer, const Line& line) const;
    bool is_too_slow(const Peer& peer, const Line& line) const;
    void await_line(Peer& peer, std::uint64_t sequence, OutFrame& frame);
    void leave_line(Peer& peer, const OutFrame& frame);
    std::size_t window(const Line& line) const;
    bool competes(const Peer& peer) const;
    std::uint64_t least_gone() const;
    bool is_ahead(const Peer& peer) const;
    void let_go();
    void requeue(Line& line);
    void wake_lines(const Peer& peer);
    void maybe_over(const OutPointer& message);
    void deliver(Peer& peer, std::pair<std::uint32_t, std::uint32_t> id);
    void place(Peer& peer, InMessage& message);
    InMessage* message_of(Peer& peer, const FrameHeader& header);
    void revoke(Claim& claim);
    void note_heard(Line& line);
    bool is_late(const Peer& peer, const Line& line, double now) const;
    bool is_known(const Peer& peer, std::uint64_t sequence) const;
    void measure(Line& line, const OutFrame& frame, double now);

    using Task = std::tuple<int, std::uint64_t>;  // -priority, number
    using TaskOrder = std::priority_queue<Task, std::vector<Task>, std::greater<>>;
    bool is_enough_ready() const;
    TaskOrder* next_tasks();  // those of which the first is to be done now; null: none
    TaskOrder due_, ahead_;
    std::unordered_map<std::uint64_t, std::function<void()>> tasks_;
    std::uint64_t num_tasks_ = 0;
};

}  // namespace syncline::wire
