// Work on XLA's own threads: chunks that whoever is free takes, the caller among them.
#pragma once

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

#include "xla/ffi/api/c_api.h"

namespace fedsofim {

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// Chunks 0, 1, ... of some work, and how many threads still hold this.
struct Queue {
  void (*run)(void* work, Queue* queue, int64_t chunk);
  void* work;
  int64_t chunks, next, done, holders;

  // The next chunk, or one that is not there when all are taken.
  int64_t take() { return __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED); }
  void finish() { __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE); }
  bool finished() const { return __atomic_load_n(&done, __ATOMIC_ACQUIRE) >= chunks; }
};

inline void let_go(Queue* queue) {
  if (__atomic_sub_fetch(&queue->holders, 1, __ATOMIC_ACQ_REL) == 0) free(queue);
}

// Works through chunks, if one is left. The caller waits for every chunk that was taken, so who has taken none may
// come when the work is gone, and touches nothing but the queue.
inline void lend_a_hand(Queue* queue) {
  const int64_t chunk = queue->take();
  if (chunk < queue->chunks) queue->run(queue->work, queue, chunk);
}

inline void help(void* queue) {
  lend_a_hand((Queue*)queue);
  let_go((Queue*)queue);
}

// Asks for as many helpers as there are threads and chunks for; without them the caller does everything.
inline void ask_for_help(const XLA_FFI_CallFrame* frame, Queue* queue) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args count = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, nullptr, frame->ctx,
                                              &threads};
  XLA_FFI_Error* error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count);
  for (int64_t i = 1; !error && i < least(threads, queue->chunks); i++) {
    __atomic_add_fetch(&queue->holders, 1, __ATOMIC_RELAXED);
    XLA_FFI_ThreadPool_Schedule_Args task = {XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, nullptr, frame->ctx, help,
                                             queue};
    error = frame->api->XLA_FFI_ThreadPool_Schedule(&task);
    if (error) let_go(queue);
  }
  if (error) {
    XLA_FFI_Error_Destroy_Args args = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, error};
    frame->api->XLA_FFI_Error_Destroy(&args);
  }
}

// Calls work->run(queue, chunk) on several threads and returns when all chunks are finished. `run` does the chunk, calls
// queue->finish(), takes the next, and so on; after its last finish() the work may be gone. False: no memory.
template <typename Work>
bool on_all_threads(const XLA_FFI_CallFrame* frame, int64_t chunks, Work* work) {
  Queue* queue = (Queue*)malloc(sizeof(Queue));
  if (!queue) return false;
  auto run = [](void* work, Queue* queue, int64_t chunk) { ((Work*)work)->run(queue, chunk); };
  *queue = {run, work, chunks, 0, 0, 1};
  ask_for_help(frame, queue);
  lend_a_hand(queue);
  while (!queue->finished()) sched_yield();
  let_go(queue);
  return true;
}

// --- the interface to XLA -----------------------------------------------------------------------------------

inline XLA_FFI_Error* complain(const XLA_FFI_CallFrame* frame, XLA_FFI_Error_Code code, const char* what) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, what, code};
  return frame->api->XLA_FFI_Error_Create(&args);
}

// Is this a call? If not, XLA asks which interface this was compiled for, and is answered here.
inline bool is_call(XLA_FFI_CallFrame* frame) {
  for (XLA_FFI_Extension_Base* e = frame->extension_start; e; e = e->next)
    if (e->type == XLA_FFI_Extension_Metadata) {
      XLA_FFI_Metadata* metadata = ((XLA_FFI_Metadata_Extension*)e)->metadata;
      metadata->api_version.major_version = XLA_FFI_API_MAJOR;
      metadata->api_version.minor_version = XLA_FFI_API_MINOR;
      return false;
    }
  return frame->stage == XLA_FFI_ExecutionStage_EXECUTE;
}

inline XLA_FFI_Buffer* operand(const XLA_FFI_CallFrame* frame, int i) { return (XLA_FFI_Buffer*)frame->args.args[i]; }
inline XLA_FFI_Buffer* result(const XLA_FFI_CallFrame* frame, int i) { return (XLA_FFI_Buffer*)frame->rets.rets[i]; }

inline bool is(const XLA_FFI_Buffer* buffer, XLA_FFI_DataType kind, int64_t rank) {
  return buffer->dtype == kind && buffer->rank == rank;
}

}  // namespace fedsofim
