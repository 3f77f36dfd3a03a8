#pragma once

/// Gives every job that is isolated to no actor to `take`, for as long as the process lives, and none to libdispatch.
/// To be called once, before there is any task.
///
/// - Parameter take: called on any thread; runs the job, or has it run.
void holdfast_take_global_jobs(
    void (*_Nonnull take)(void *_Nonnull job, void *_Nonnull context), void *_Nonnull context);
