// The two halves of a line's connection, each with a thread of its own: frames are written from where they lie, and
// read into where they belong.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <string>
#include <vector>

#include "hub.hpp"
#include "socket.hpp"

namespace syncline::wire {

class Half {
   public:
    Half(Hub& hub, Line& line, std::uint64_t epoch, Socket socket)
        : hub_(hub), line_(line), epoch_(epoch), socket_(std::move(socket)) {}
    Half(const Half&) = delete;
    Half& operator=(const Half&) = delete;

    int fd() const { return socket_.fd(); }
    Line& line() { return line_; }
    std::uint64_t epoch() const { return epoch_; }
    const std::string& why() const { return why_; }

   protected:
    ~Half() = default;
    bool fail(std::string why);

    Hub& hub_;
    Line& line_;
    const std::uint64_t epoch_;
    Socket socket_;
    std::string why_;
};

class Reader final : public Half {
   public:
    using Half::Half;
    ~Reader();
    // Read a bounded amount; false when the connection is of no more use, which `why` then explains.
    bool read();
    // Whether something is to be written back since the last call.
    bool has_answer() { return std::exchange(has_answer_, false); }

   private:
    bool begin_frame();
    bool end_frame();
    bool end_control();
    Arrival judge();
    // Where the rest of the payload goes; the claim's lock is held.
    std::size_t rest(iovec* into);
    // Be told only when so many bytes have come: one look a frame, not one a segment.
    void await(std::size_t size);

    FrameHeader header_{};
    std::size_t num_header_ = 0;
    std::size_t num_payload_ = 0;
    Claim claim_;
    bool is_claimed_ = false;     // the payload goes to its place
    bool is_broken_off_ = false;  // its place was taken away before all was there
    bool has_answer_ = false;
    int low_water_ = 1;
    std::vector<std::uint8_t> scratch_;
};

class Writer final : public Half {
   public:
    using Half::Half;
    ~Writer();
    bool write();
    bool is_blocked() const { return is_blocked_; }
    void unblock() { is_blocked_ = false; }
    bool has_more() const { return has_more_; }
    // Give the memory of messages back, on a line that delivers nothing and whose frames go over others: a frame that
    // was begun is finished from a copy, since what comes after it on this connection would not be understood without.
    void let_go();

    bool waits_to_write = false;  // the worker has asked to be told when there is room

   private:
    bool fill();
    void prepare(Going& going) const;

    std::vector<Going> going_;
    std::vector<std::uint8_t> copy_;  // of the frame that was begun, where its message was let go
    std::size_t first_ = 0;  // of those going, the first that is not written
    std::size_t gone_ = 0;   // bytes of it that are
    bool is_blocked_ = false;
    bool has_more_ = false;
};

}  // namespace syncline::wire
