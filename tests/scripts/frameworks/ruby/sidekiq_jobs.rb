# Sidekiq of the system's package: two worker processes, retries, scheduled jobs, its API.
require "sidekiq"
require "sidekiq/api"
require "rbconfig"

COUNT = Integer(ENV.fetch("JOBS", "300"))
MARKS = File.join(ENV.fetch("DIR"), "marks")
REDIS = { url: "redis://127.0.0.1:#{ENV.fetch("REDIS_PORT")}/0" }
Sidekiq.configure_client { |config| config.redis = REDIS }
Sidekiq.configure_server do |config|
  config.redis = REDIS
  config.average_scheduled_poll_interval = 1
end

class Leave
  include Sidekiq::Worker

  def perform(n)
    sleep 0.01
    File.open(MARKS, "a") { |file| file.syswrite("#{n}\n") }
  end
end

class Again
  include Sidekiq::Worker
  sidekiq_options retry: 3
  sidekiq_retry_in { 0 }

  def perform
    File.open("#{MARKS}-again", "a") { |file| file.syswrite("x\n") }
    raise "on purpose" if File.size("#{MARKS}-again") < 6
  end
end

def marks
  File.exist?(MARKS) ? File.readlines(MARKS).map(&:to_i) : []
end

def test(name)
  yield
  puts "case #{name} ok"
rescue StandardError => error
  warn error.full_message
  puts "case #{name} failed #{error.class}: #{error.message.split.join(" ")[0, 300]}"
end

def await(what, seconds = 40)
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
  until yield
    raise "#{what}: not within #{seconds} s" if
      Process.clock_gettime(Process::CLOCK_MONOTONIC) > finish
    sleep 0.05
  end
end

def main
  2.times do
    spawn("sidekiq", "-r", File.expand_path(__FILE__), "-c", "2", "-q", "default,2", "-q", "low",
          out: :err)
  end
  test("jobs") do
    (0...COUNT / 2).each { |n| Leave.perform_async(n) }
    await("a quarter of the jobs") { marks.uniq.size >= COUNT / 4 }
    puts "kill"
    (COUNT / 2...COUNT).each { |n| Leave.perform_async(n) }
    begin
      await("all jobs") { marks.uniq.size == COUNT }
    ensure
      all = marks
      puts "jobs #{COUNT} #{all.uniq.size} #{all.size - all.uniq.size}"
    end
  end
  test("scheduled") do
    Leave.perform_in(1, 1000)
    await("the job") { marks.include?(1000) }
  end
  test("retry") do
    Again.perform_async
    await("the third try", 60) { File.exist?("#{MARKS}-again") && File.size("#{MARKS}-again") == 6 }
  end
  test("bulk") do
    Sidekiq::Client.push_bulk("class" => Leave, "args" => (2000...2050).map { |n| [n] })
    await("all") { (2000...2050).all? { |n| marks.include?(n) } }
  end
  test("other-queue") do
    Leave.set(queue: "low").perform_async(3000)
    await("the job") { marks.include?(3000) }
  end
  test("api") do
    raise "queues: #{Sidekiq::Queue.all.map(&:name)}" if Sidekiq::Queue.all.size != 2
    # Processes tell their state some seconds after their start, and every five.
    await("two processes") { Sidekiq::ProcessSet.new.size == 2 }
    await("the counts") { Sidekiq::Stats.new.processed >= COUNT }
    Sidekiq::ScheduledSet.new.clear
    Leave.perform_in(1000, 1)
    raise "scheduled" if Sidekiq::ScheduledSet.new.map(&:args) != [[1]]
    Sidekiq::ScheduledSet.new.each(&:delete)
    Sidekiq::Queue.new("low").clear
  end
end

$stdout.sync = true
main if $PROGRAM_NAME == __FILE__
